// The page of explore.html: controls for do() and conditions, a chart for each column, an effect, pictures and CSV.
"use strict";

const MOST_BARS = 10;
const CARD = 300; // pixels that a chart is wide
const THIN = 4; // and the narrowest bin

/** Make an element with attributes, or SVG where `space` says so; texts are texts, never markup. */
function made(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "path", "text", "title", "g", "line", "circle", "style"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;
const figure = (number) => (number === null ? "" : Number(number.toPrecision(4)).toLocaleString("en"));

/** Return a figure and how far it may be off, to two digits of the latter. */
function measured(number, off) {
  if (number === null || !(off > 0)) return [figure(number), null];
  const digits = Math.min(Math.max(1 - Math.floor(Math.log10(off)), 0), 12);
  const places = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return [number.toLocaleString("en", places), off.toLocaleString("en", places)];
}

/** Return a text, or its start and end where it is long: names often differ in their last letters. */
const short = (text, most) => {
  const end = Math.floor((most - 1) * 0.4);
  return text.length > most ? `${text.slice(0, most - 1 - end)}…${text.slice(-end)}` : text;
};

/** Return what a chart shows of a column: its cells, few enough to be read. */
function shownCells(column) {
  const missing = column.missing;
  const cells = column.labels.map((_, cell) => cell).filter((cell) => cell !== missing);
  return { cells, missing };
}

/** Draw bars of each level: now, as it was (a mark), and what noise may add (a whisker). */
function barChart(column, was, now, spread, choose) {
  const { cells, missing } = shownCells(column);
  const all = missing === null ? cells : [...cells, missing];
  const weight = (cell) => Math.max(now ? now[cell] : 0, was[cell]);
  let kept = all;
  let rest = [];
  if (all.length > MOST_BARS) {
    const large = new Set([...all].sort((a, b) => weight(b) - weight(a)).slice(0, MOST_BARS - 1));
    kept = all.filter((cell) => large.has(cell));
    rest = all.filter((cell) => !large.has(cell));
  }
  const sum = (law, several) => several.reduce((total, cell) => total + law[cell], 0);
  const rows = kept.map((cell) => ({
    label: column.labels[cell],
    cell,
    was: was[cell],
    now: now ? now[cell] : null,
    spread: now && spread ? spread[cell] : null,
  }));
  if (rest.length) {
    const label = `${rest.length} others`;
    rows.push({ label, cell: null, was: sum(was, rest), now: now ? sum(now, rest) : null, spread: null });
  }
  const most = Math.max(...rows.map((row) => Math.max(row.was, (row.now ?? 0) + 1.96 * (row.spread ?? 0))), 1e-9);
  const widest = Math.max(...rows.map((row) => Math.min(row.label.length, 13)));
  const [left, right, step] = [Math.min(104, 16 + 7.5 * widest), 56, 24];
  const room = CARD - left - right;
  const x = (share) => left + (room * Math.min(Math.max(share, 0), most)) / most;
  const parts = rows.flatMap((row, place) => {
    const top = place * step;
    const here = row.now ?? row.was;
    const bar = made("rect", {
      x: left, y: top + 5, width: Math.max(x(here) - left, 0), height: 13, rx: 2,
      class: row.now === null ? "fill faint" : "fill",
    });
    if (row.cell !== null && row.cell !== missing && choose) {
      bar.classList.add("choice");
      bar.addEventListener("click", () => choose(row.cell));
    }
    return [
      made("text", { x: left - 8, y: top + 16, class: "end" }, made("title", {}, row.label), short(row.label, 13)),
      bar,
      row.now === null ? "" : made("path", { d: `M${x(row.was)} ${top + 2}v19`, class: "real" }),
      row.spread === null
        ? ""
        : made("path", {
            d: `M${x(here - 1.96 * row.spread)} ${top + 11.5}H${x(here + 1.96 * row.spread)}`, class: "whisker",
          }),
      made("text", { x: CARD, y: top + 16, class: "end soft" }, percent(here)),
    ].filter((part) => part !== "");
  });
  return made("svg", {
    class: "chart", viewBox: `0 0 ${CARD} ${rows.length * step}`, width: CARD, height: rows.length * step, role: "img",
    "aria-label": rows.map((row) => `${row.label} ${percent(row.now ?? row.was)}`).join(", "),
  }, ...parts);
}

/** Return where bins end on the axis: by their numbers, and wide enough to be seen where one holds a single number. */
function places(edges) {
  const whole = edges[edges.length - 1] - edges[0];
  const wide = edges.slice(1).map((edge, bin) => Math.max((CARD * (edge - edges[bin])) / whole, THIN));
  const all = wide.reduce((sum, one) => sum + one, 0);
  return wide.reduce((found, one) => [...found, found[found.length - 1] + (CARD * one) / all], [0]);
}

/** Draw the density of a column of numbers: now as a filled shape with its band of noise, as it was as a line. */
function histogramChart(column, was, now, spread) {
  const x = places(column.edges);
  const bins = x.length - 1;
  const [height, foot] = [110, 20];
  const heights = (law, add = null, side = 0) =>
    Array.from({ length: bins }, (_, bin) => {
      const share = law[bin] + (add ? side * 1.96 * add[bin] : 0);
      return Math.max(share, 0) / (x[bin + 1] - x[bin]);
    });
  const before = heights(was);
  const shape = heights(now ?? was);
  const [low, high] = now && spread ? [heights(now, spread, -1), heights(now, spread, 1)] : [null, null];
  const most = Math.max(...before, ...shape, ...(high ?? []), 1e-300);
  const y = (value) => 4 + (height - 4) * (1 - value / most);
  const steps = (values) => values.map((value, bin) => `V${y(value)}H${x[bin + 1]}`).join("");
  const band = low
    ? `M0 ${y(high[0])}${steps(high)}` +
      [...low].reverse().map((value, place) => `V${y(value)}H${x[bins - 1 - place]}`).join("") + "Z"
    : "";
  return made("svg", {
    class: "chart", viewBox: `0 0 ${CARD} ${height + foot}`, width: CARD, height: height + foot, role: "img",
    "aria-label": `Distribution of ${column.name} from ${column.ends[0]} to ${column.ends[1]}`,
  },
    made("path", { d: `M0 ${height}${steps(shape)}V${height}Z`, class: now ? "fill" : "fill faint" }),
    band ? made("path", { d: band, class: "cloud" }) : "",
    now ? made("path", { d: `M0 ${y(before[0])}${steps(before)}`, class: "real" }) : "",
    made("path", { d: `M0 ${height}H${CARD}`, class: "axis" }),
    made("text", { x: 0, y: height + 15, class: "tick" }, column.ends[0]),
    made("text", { x: CARD, y: height + 15, class: "tick end" }, column.ends[1]),
  );
}

/** Save a text or a blob as a file. */
function save(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = made("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** Return a line of CSV; a text that a spreadsheet would run starts with an apostrophe. */
function csvLine(cells) {
  const safe = (cell) => {
    const text = typeof cell === "number" ? String(cell) : cell.replace(/^(?=[=+\-@\t\r])/, "'");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${cells.map(safe).join(",")}\r\n`;
}

