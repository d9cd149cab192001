// The graph, drawn with the mouse or by name: every change is sent to escudo, which names cycles and says what it implies.
"use strict";

const at = (id) => document.getElementById(id);
const style = getComputedStyle(document.documentElement);
const colour = (name) => style.getPropertyValue(`--${name}`).trim();
const KINDS = { arrow: "edges", line: "lines", forbid: "forbidden" };
const STEP = { x: 150, y: 90 };

let cy = null;
let drawn = { nodes: [], edges: [], lines: [], latents: [], forbidden: [] };
let past = [];
let future = [];
let chosen = null; // the cause that was clicked, until its effect is

function looks() {
  const ink = colour("ink");
  return [
    { selector: "node", style: { shape: "round-rectangle", label: "data(id)", color: ink, "background-color": colour("paper"), "border-color": colour("edge"), "border-width": 1.5, "text-valign": "center", "font-size": 14, "font-family": "system-ui, sans-serif", width: "data(width)", height: 34, "text-max-width": 220 } },
    { selector: "node[?latent]", style: { shape: "ellipse", "border-style": "dashed", "font-style": "italic" } },
    { selector: "node.chosen", style: { "border-color": colour("accent"), "border-width": 3 } },
    { selector: "node:selected", style: { "border-color": colour("accent"), "border-width": 3 } },
    { selector: "edge", style: { width: 2, "line-color": colour("soft"), "curve-style": "bezier" } },
    { selector: "edge[kind = 'edges']", style: { "target-arrow-shape": "triangle", "target-arrow-color": colour("soft") } },
    { selector: "edge[kind = 'lines']", style: { "line-style": "dashed" } },
    { selector: "edge[kind = 'forbidden']", style: { "line-style": "dotted", "line-color": colour("mark"), "target-arrow-shape": "tee", "target-arrow-color": colour("mark") } },
    { selector: "edge:selected", style: { "line-color": colour("accent"), "target-arrow-color": colour("accent"), width: 4 } },
  ];
}

const copy = (graph) => structuredClone(graph);
const same = (a, b) => a[0] === b[0] && a[1] === b[1];
const joined = (a, b) => same(a, b) || same(a, [b[1], b[0]]);
const width = (name) => Math.min(Math.max(44, 9 * name.length + 24), 240);

/** Put the graph on the canvas; nodes stay where they are. */
function paint() {
  const places = new Map(cy.nodes().map((node) => [node.id(), { ...node.position() }]));
  const fresh = places.size === 0;
  const centre = cy.extent();
  cy.elements().remove();
  cy.add(drawn.nodes.map((name, place) => ({
    group: "nodes",
    data: { id: name, latent: drawn.latents.includes(name), width: width(name) },
    position: places.get(name) ?? (fresh ? { x: 0, y: 0 } : { x: (centre.x1 + centre.x2) / 2 + 30 * (place % 3), y: centre.y1 + 60 }),
  })));
  for (const kind of Object.values(KINDS)) {
    cy.add(drawn[kind].map(([source, target]) => ({ group: "edges", data: { id: `${kind}\u0000${source}\u0000${target}`, source, target, kind } })));
  }
  if (fresh) layout();
  at("names").replaceChildren(...drawn.nodes.map((name) => Object.assign(document.createElement("option"), { value: name })));
  at("open").replaceChildren(...drawn.lines.map(decision));
  at("undo").disabled = past.length === 0;
  at("redo").disabled = future.length === 0;
  selected();
}

/** Lay the graph out in layers, causes first. */
function layout() {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 28, ranksep: 54 });
  graph.setDefaultEdgeLabel(() => ({}));
  const linked = new Set([...drawn.edges, ...drawn.lines].flat());
  drawn.nodes.filter((name) => linked.has(name)).forEach((name) => graph.setNode(name, { width: width(name), height: 34 }));
  [...drawn.edges, ...drawn.lines].forEach(([source, target]) => graph.setEdge(source, target));
  if (linked.size) dagre.layout(graph);
  const low = linked.size ? graph.graph().height + 70 : 0;
  const alone = drawn.nodes.filter((name) => !linked.has(name));
  const across = Math.max(Math.ceil(Math.sqrt(1.6 * alone.length)), 1);
  cy.batch(() => {
    for (const name of linked) if (graph.node(name)) cy.getElementById(name).position({ x: graph.node(name).x, y: graph.node(name).y });
    alone.forEach((name, place) => cy.getElementById(name).position({ x: (place % across) * STEP.x, y: low + Math.floor(place / across) * STEP.y }));
  });
  cy.fit(undefined, 30);
  if (cy.zoom() > 1.3) {
    cy.zoom(1.3);
    cy.center();
  }
}

/** Take a change, unless it makes a cycle, which is named. */
async function change(next) {
  const before = copy(drawn);
  drawn = next;
  paint();
  try {
    const { says } = await ask("/api/graph", drawn);
    past.push(before);
    future = [];
    at("cycle").hidden = true;
    said(says);
  } catch (error) {
    drawn = before;
    at("cycle").hidden = false;
    at("cycle").textContent = error.message;
  }
  paint();
  document.body.dataset.settled = String(Number(document.body.dataset.settled ?? 0) + 1);
}

async function back(from, to) {
  if (from.length === 0) return;
  to.push(copy(drawn));
  drawn = from.pop();
  paint();
  said((await ask("/api/graph", drawn)).says);
  at("cycle").hidden = true;
  document.body.dataset.settled = String(Number(document.body.dataset.settled ?? 0) + 1);
}

/** Return the graph without anything between two columns. */
function apart(graph, pair) {
  const next = copy(graph);
  for (const kind of Object.values(KINDS)) next[kind] = next[kind].filter((edge) => !joined(edge, pair));
  return next;
}

function connect(source, target, kind) {
  if (source === target || !drawn.nodes.includes(source) || !drawn.nodes.includes(target)) return;
  const next = apart(drawn, [source, target]);
  next[kind].push([source, target]);
  change(next);
}

function remove(elements) {
  let next = copy(drawn);
  elements.forEach((element) => {
    if (element.isEdge()) next = apart(next, [element.data("source"), element.data("target")]);
    else if (element.data("latent")) {
      const name = element.id();
      for (const kind of Object.values(KINDS)) next[kind] = next[kind].filter((edge) => !edge.includes(name));
      next.nodes = next.nodes.filter((node) => node !== name);
      next.latents = next.latents.filter((node) => node !== name);
    } else {
      for (const kind of Object.values(KINDS)) next[kind] = next[kind].filter((edge) => !edge.includes(element.id()));
    }
  });
  change(next);
}

function decision([one, other]) {
  const item = document.createElement("li");
  const text = document.createElement("span");
  text.textContent = `${one} — ${other}`;
  const button = (words, source, target) => {
    const made = Object.assign(document.createElement("button"), { type: "button", className: "plain", textContent: words });
    made.addEventListener("click", () => connect(source, target, "edges"));
    return made;
  };
  item.append(text, button(`${one} causes ${other}`, one, other), button(`${other} causes ${one}`, other, one));
  return item;
}

function listed(id, items) {
  at(id).replaceChildren(...items.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
}

function said(says) {
  at("summary").textContent = says.summary;
  const all = says.answered.length && !says.refused.length;
  at("answered").textContent = says.answered.length === 0 ? (says.refused.length ? "None of the columns can be set yet." : "")
    : all ? "What setting any column does is answered." : `Setting ${says.answered.join(", ")} is answered.`;
  listed("refused", says.refused.slice(0, 6).map((one) => one.why));
  listed("independent", [...says.independent, ...(says.more ? [`and ${says.more} more`] : [])]);
}

function selected() {
  const some = cy.$(":selected");
  at("delete").disabled = some.empty();
  at("turn").disabled = some.filter("edge").empty();
}

function pick(node) {
  if (chosen === null) {
    chosen = node.id();
    node.addClass("chosen");
    at("hint").textContent = `${chosen}: now click its effect, or click it again to leave it.`;
    return;
  }
  const source = chosen;
  chosen = null;
  cy.nodes().removeClass("chosen");
  at("hint").textContent = "Click a cause, then its effect.";
  if (source !== node.id()) connect(source, node.id(), KINDS[at("tool").value]);
}

async function start() {
  cy = cytoscape({ container: at("canvas"), style: looks(), minZoom: 0.05, maxZoom: 3, selectionType: "single", boxSelectionEnabled: false, hideEdgesOnViewport: false, textureOnViewport: false });
  globalThis.escudoGraph = { cy, get drawn() { return drawn; } };
  const { says, ...graph } = await ask("/api/graph");
  drawn = graph;
  paint();
  said(says);
  cy.on("tap", "node", (event) => pick(event.target));
  cy.on("select unselect", selected);
  at("undo").addEventListener("click", () => back(past, future));
  at("redo").addEventListener("click", () => back(future, past));
  at("delete").addEventListener("click", () => remove(cy.$(":selected")));
  at("turn").addEventListener("click", () => {
    const edge = cy.$("edge:selected").first();
    connect(edge.data("target"), edge.data("source"), edge.data("kind"));
  });
  at("layout").addEventListener("click", layout);
  at("hidden-cause").addEventListener("click", () => {
    let number = 1;
    while (drawn.nodes.includes(`hidden ${number}`)) number += 1;
    const next = copy(drawn);
    next.nodes.push(`hidden ${number}`);
    next.latents.push(`hidden ${number}`);
    change(next);
  });
  at("by-hand").addEventListener("submit", (event) => {
    event.preventDefault();
    connect(at("from").value, at("to").value, KINDS[at("tool").value]);
  });
  at("remove").addEventListener("click", () => change(apart(drawn, [at("from").value, at("to").value])));
  at("import").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    try {
      const { says: words, ...graph } = await ask("/api/graph/read", { text: await file.text() });
      past.push(copy(drawn));
      drawn = graph;
      cy.elements().remove();
      paint();
      said(words);
      at("cycle").hidden = true;
    } catch (error) {
      at("cycle").hidden = false;
      at("cycle").textContent = error.message;
    }
    event.target.value = "";
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea")) return;
    if ((event.ctrlKey || event.metaKey) && event.key === "z") {
      event.preventDefault();
      back(...(event.shiftKey ? [future, past] : [past, future]));
    } else if (event.key === "Delete" || event.key === "Backspace") {
      if (cy.$(":selected").nonempty()) remove(cy.$(":selected"));
    } else if (event.key.startsWith("Arrow") && document.activeElement === at("canvas")) {
      event.preventDefault();
      const by = { ArrowLeft: { x: 60, y: 0 }, ArrowRight: { x: -60, y: 0 }, ArrowUp: { x: 0, y: 60 }, ArrowDown: { x: 0, y: -60 } }[event.key];
      cy.panBy(by);
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => cy.style(looks()));
  document.body.dataset.ready = "yes";
}

start();
