// The page of explore.html for linked tables: do() on people and, from a row on, on their rows; a chart of each column
// by the number of the row, and the histories of a few people.
//
// People and their rows are drawn as escudo.synthesis draws them: people along the arrows, each table's number of rows
// among their columns; then first rows, and next ones given the row before. Every row of a person uses up the same
// random numbers whatever is set, so what does not respond stays as it was to the last person.
"use strict";

const PEOPLE = 8000; // drawn for each question
const ROW_NUMBERS = 8; // shown in charts
const HISTORIES = 6;
const GROUPS = 8; // bars of a column of numbers
const AT_LEVELS = 12; // most levels that a history shows

class LinkedModel {
  constructor(data) {
    this.data = data;
    this.people = new ExploredModel(data.people);
    const laws = (told) => told.map(({ column, ...law }) => ({ name: column, law: new Law(law) }));
    this.tables = data.tables.map((table) => ({ ...table, first: laws(table.first), next: laws(table.next) }));
    this.columns = new Map([...this.people.columns].map(([name, column]) => [name, { column, table: null }]));
    for (const table of this.tables) {
      for (const column of table.columns) this.columns.set(column.name, { column, table });
    }
  }

  /** Return why columns cannot be set, in words; an empty text if they can. */
  refusal(names) {
    const silent = names.find((name) => !this.data.graph.includes(name));
    return silent === undefined ? "" :
      `The graph does not name ‘${silent}’, so it says nothing of what setting it does. Look at those with a value ` +
      "instead, if an association is enough.";
  }

  /** Draw people and their rows, as cells.
   *
   * `fixed` has for each column that is set from which row to which it has which cell, as in [[2, 20, 1]]; of people,
   * [[1, 1, cell]], and of a number of rows, [[1, how many, cell]]. `evidence` has the cells of people to look at.
   */
  draw(count, fixed, evidence, seed) {
    const own = [...fixed].filter(([name]) => this.people.columns.has(name));
    const people = this.people.rows(count, new Map(own.map(([name, spans]) => [name, spans[0][2]])), evidence, seed);
    const rows = new Map();
    this.tables.forEach((table, place) => {
      rows.set(table.name, this.drawRows(table, people, count, fixed, 16777259 * seed + 4194301 * place));
    });
    return { people, rows };
  }

  drawRows(table, people, count, fixed, seed) {
    const slots = new Map([...people.keys(), table.number].map((name, place) => [name, place]));
    for (const { name } of [...table.first, ...table.next]) {
      for (const one of [name, `${name}@prev`]) if (!slots.has(one)) slots.set(one, slots.size);
    }
    const ready = (laws) => laws.map(({ name, law }) => ({
      law, slot: slots.get(name), before: slots.get(`${name}@prev`), parents: law.parents.map((one) => slots.get(one)),
      spans: fixed.get(name) ?? [],
    }));
    const [first, next] = [ready(table.first), ready(table.next)];
    const columns = table.columns.map(({ name }) => ({ slot: slots.get(name), cells: [] }));
    const [person, number] = [[], []];
    const exactly = fixed.get(table.count)?.[0][1];
    const [bins, known] = [people.get(table.count), new Int32Array(slots.size)];
    const ofPeople = [...people].map(([name, codes]) => [slots.get(name), codes]);
    for (let whom = 0; whom < count; whom += 1) {
      const random = generator(seed + whom);
      for (const [slot, codes] of ofPeople) known[slot] = codes[whom];
      const drawn = this.drawnLength(table, bins[whom], random());
      const length = exactly ?? drawn;
      for (let nth = 1; nth <= length; nth += 1) {
        known[slots.get(table.number)] = table.numberEdges.findLastIndex((edge) => edge <= nth);
        for (const { law, slot, parents, spans } of nth === 1 ? first : next) {
          const point = random();
          const set = spans.find(([low, high]) => low <= nth && nth <= high);
          known[slot] = set ? set[2] : pick(law, parents, known, point);
        }
        person.push(whom);
        number.push(nth);
        for (const { slot, cells } of columns) cells.push(known[slot]);
        for (const { slot, before } of next) known[before] = known[slot];
      }
    }
    return { person, number, codes: new Map(table.columns.map(({ name }, place) => [name, columns[place].cells])) };
  }

  /** Return how many rows somebody has, of whom the bin of that number is known. */
  drawnLength(table, bin, point) {
    const [low, high] = [table.countEdges[bin], table.countEdges[bin + 1]];
    let total = 0;
    for (let rows = low; rows < high; rows += 1) total += table.lengths[rows];
    if (!(total > 0)) return low + Math.floor(point * (high - low));
    let left = point * total;
    let rows = low;
    while (rows < high - 1 && (left -= table.lengths[rows]) >= 0) rows += 1;
    return rows;
  }

  /** Return the law of each column among those who were drawn: of people one, of rows one for each number. */
  laws({ people, rows }) {
    const found = new Map();
    const even = (size) => new Float64Array(size).fill(1);
    for (const [name, codes] of people) {
      found.set(name, shares(codes, even(codes.length), this.people.columns.get(name).labels.length));
    }
    for (const table of this.tables) {
      const { number, codes } = rows.get(table.name);
      const shown = Math.min(table.most, ROW_NUMBERS);
      for (const { name, labels } of table.columns) {
        const counts = Array.from({ length: shown }, () => new Float64Array(labels.length));
        codes.get(name).forEach((cell, row) => {
          if (number[row] <= shown) counts[number[row] - 1][cell] += 1;
        });
        const total = (law) => law.reduce((a, b) => a + b, 0);
        found.set(name, counts.map((law) => (total(law) > 0 ? law.map((one) => one / total(law)) : null)));
      }
    }
    return found;
  }
}

/** Draw from a law that is a table, at a point in [0, 1). */
function pick(law, parents, known, point) {
  let row = 0;
  for (let place = 0; place < parents.length; place += 1) row = row * law.sizes[place] + known[parents[place]];
  const start = row * law.size;
  let left = point;
  let cell = 0;
  while (cell < law.size - 1 && (left -= law.table[start + cell]) >= 0) cell += 1;
  while (cell > 0 && law.table[start + cell] === 0) cell -= 1;
  return cell;
}

/** Return the cells of a column as few groups: bins side by side, or the most frequent levels and the others. */
function grouped(column, was) {
  const cells = column.labels.map((_, cell) => cell);
  if (cells.length <= GROUPS) return cells.map((cell) => ({ label: column.labels[cell], cells: [cell] }));
  if (column.edges) {
    const bins = cells.filter((cell) => cell !== column.missing);
    const step = Math.ceil(bins.length / GROUPS);
    const parts = bins.filter((bin) => bin % step === 0).map((bin) => bins.slice(bin, bin + step));
    const label = (part) => `${figure(column.edges[part[0]])} to ${figure(column.edges[part.at(-1) + 1])}`;
    const missing = column.missing === null ? [] : [{ label: column.labels[column.missing], cells: [column.missing] }];
    return [...parts.map((part) => ({ label: label(part), cells: part })), ...missing];
  }
  const weight = (cell) => was.reduce((sum, law) => sum + (law ? law[cell] : 0), 0);
  const large = new Set([...cells].sort((a, b) => weight(b) - weight(a)).slice(0, GROUPS - 1));
  const rest = cells.filter((cell) => !large.has(cell));
  const kept = cells.filter((cell) => large.has(cell)).map((cell) => ({ label: column.labels[cell], cells: [cell] }));
  return [...kept, { label: `${rest.length} others`, cells: rest }];
}

/** Draw a line of bars for each level, one for each number of the row: now, and as it was (a mark). */
function numberedChart(column, was, now) {
  const groups = grouped(column, was);
  const sum = (law, cells) => cells.reduce((total, cell) => total + law[cell], 0);
  const here = now ?? was;
  const [step, foot] = [40, 18];
  const left = Math.min(104, 16 + 7.5 * Math.max(...groups.map(({ label }) => Math.min(label.length, 13))));
  const wide = (CARD - left - 4) / was.length;
  const most = Math.max(1e-9, ...groups.flatMap(({ cells }) =>
    [...was, ...here].filter((law) => law !== null).map((law) => sum(law, cells))));
  const parts = groups.flatMap(({ label, cells }, line) => {
    const base = (line + 1) * step - 4;
    const high = (law) => ((step - 10) * sum(law, cells)) / most;
    const bars = here.flatMap((law, place) => {
      if (law === null) return [];
      const x = left + place * wide;
      const said = `${label}, row ${place + 1}: ${percent(sum(law, cells))}`;
      const before = now && was[place] ? `, as it was ${percent(sum(was[place], cells))}` : "";
      return [
        made("rect", {
          x: x + 2, y: base - high(law), width: wide - 4, height: high(law), class: now ? "fill" : "fill faint",
        }, made("title", {}, said + before)),
        now && was[place] ? made("path", { d: `M${x} ${base - high(was[place])}h${wide}`, class: "real" }) : "",
      ];
    });
    return [
      made("text", { x: left - 8, y: base - 6, class: "end" }, made("title", {}, label), short(label, 13)),
      ...bars.filter((part) => part !== ""),
      made("path", { d: `M${left} ${base}H${CARD - 4}`, class: "axis" }),
    ];
  });
  const numbers = was.map((_, place) =>
    made("text", { x: left + (place + 0.5) * wide, y: groups.length * step + 12, class: "tick mid" }, `${place + 1}`));
  const height = groups.length * step + foot;
  const told = here.flatMap((law, place) => law === null ? [] :
    [`row ${place + 1}: ${groups.map(({ label, cells }) => `${label} ${percent(sum(law, cells))}`).join(", ")}`]);
  return made("svg", {
    class: "chart", viewBox: `0 0 ${CARD} ${height}`, width: CARD, height, role: "img", "aria-label": told.join("; "),
  }, ...parts, ...numbers);
}

/** Draw the history of one person: the level of each row, against the days since the first one. */
function historyChart(column, days, cells, longest) {
  const [row, foot] = [18, 18];
  const left = Math.min(104, 16 + 7.5 * Math.max(...column.labels.map((label) => Math.min(label.length, 13))));
  const height = row * column.labels.length;
  const x = (day) => left + 4 + ((CARD - left - 12) * day) / longest;
  const y = (cell) => height - row * (cell + 0.5);
  const line = days.map((day, place) => `${place ? "L" : "M"}${x(day)} ${y(cells[place])}`).join("");
  return made("svg", {
    class: "chart", viewBox: `0 0 ${CARD} ${height + foot}`, width: CARD, height: height + foot, role: "img",
    "aria-label": days.map((day, place) => `day ${day}: ${column.labels[cells[place]]}`).join(", "),
  },
    ...column.labels.map((label, cell) =>
      made("text", { x: left - 8, y: y(cell) + 4, class: "end soft" }, short(label, 13))),
    made("path", { d: line, class: "real" }),
    ...days.map((day, place) => made("circle", { cx: x(day), cy: y(cells[place]), r: 3.5, class: "shade" })),
    made("text", { x: CARD, y: height + 14, class: "tick end" }, `${days.at(-1).toLocaleString("en")} days`));
}

class LinkedPage {
  constructor(model) {
    this.model = model;
    this.fixed = new Map();
    this.evidence = new Map();
    const at = (id) => document.getElementById(id);
    this.at = at;
    this.before = model.draw(PEOPLE, new Map(), new Map(), 1);
    this.was = model.laws(this.before);
    at("how").addEventListener("change", () => this.fillColumns());
    at("column").addEventListener("change", () => this.fillValues());
    at("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.asked(at("how").value, at("column").value, Number(at("value").value));
    });
    at("clear").addEventListener("click", () => {
      this.fixed.clear();
      this.evidence.clear();
      this.show();
    });
    at("history").replaceChildren(...this.shownInHistories().map(({ name }) => made("option", { value: name }, name)));
    at("history").addEventListener("change", () => this.showHistories());
    at("save-csv").addEventListener("click", () => save("what-if.csv", this.csv(), "text/csv"));
    at("save-rows").addEventListener("click", () => this.saveRows());
    this.fillColumns();
    this.show();
  }

  shownInHistories() {
    const several = this.model.tables.flatMap(({ columns, start, gap }) =>
      columns.filter(({ name, labels }) => ![start, gap].includes(name) && labels.length <= AT_LEVELS));
    return several.sort((a, b) => b.labels.length - a.labels.length);
  }

  /** Offer the columns that can be set, or those of people that can be looked at. */
  fillColumns() {
    const { model, at } = this;
    const setting = at("how").value === "do";
    const groups = [{ label: model.data.name, names: [...model.people.columns.keys()] }].concat(
      setting ? model.tables.map(({ name, columns }) => ({ label: name, names: columns.map((one) => one.name) })) : []);
    const counts = model.tables.map(({ count }) => count);
    const fine = (name) => (setting ? !model.refusal([name]) : !counts.includes(name));
    const usable = groups.map(({ label, names }) => ({ label, names: names.filter(fine) }));
    at("column").replaceChildren(...usable.filter(({ names }) => names.length).map(({ label, names }) =>
      made("optgroup", { label }, ...names.map((name) => made("option", { value: name }, name)))));
    this.fillValues();
  }

  fillValues() {
    const { model, at } = this;
    const found = model.columns.get(at("column").value);
    const counted = model.tables.find(({ count }) => count === at("column").value);
    const labels = counted ? Array.from({ length: counted.most + 1 }, (_, rows) => `${rows}`) : found?.column.labels ?? [];
    at("value").replaceChildren(...labels.map((label, cell) => made("option", { value: cell }, label)));
    const rows = Boolean(found?.table);
    for (const id of ["from", "to"]) {
      at(id).parentElement.hidden = !rows;
      if (rows) at(id).max = found.table.most;
    }
    at("from").value = 1;
    at("to").value = rows ? found.table.most : 1;
  }

  /** Set a column or look at people with a value, by the form. */
  asked(how, name, cell) {
    const found = this.model.columns.get(name);
    if (!found) return;
    if (how === "given") {
      this.fixed.delete(name);
      this.evidence.set(name, cell);
      this.show();
      return;
    }
    const { most } = found.table ?? { most: 1 };
    const read = (id) => Math.min(Math.max(Math.round(Number(this.at(id).value)) || 1, 1), most);
    const low = found.table ? read("from") : 1;
    this.set(name, cell, low, found.table ? Math.max(read("to"), low) : 1);
  }

  /** Set a column, of rows from one to another; what it was set to in these rows before is forgotten. */
  set(name, cell, low, high) {
    const counted = this.model.tables.find(({ count }) => count === name);
    const bin = counted ? counted.countEdges.findLastIndex((edge) => edge <= cell) : cell;
    const others = counted ? [] : (this.fixed.get(name) ?? []).filter(([from, to]) => to < low || high < from);
    this.evidence.delete(name);
    this.fixed.set(name, [...others, counted ? [1, cell, bin] : [low, high, cell]].sort((a, b) => a[0] - b[0]));
    this.show();
  }

  /** Return what is set or looked at, in words, each with what takes it back. */
  told() {
    const { model } = this;
    const label = (name, cell) => model.columns.get(name).column.labels[cell];
    const rows = (table, low, high) =>
      low === 1 && high >= table.most ? "" : low === high ? `, row ${low}`
        : high >= table.most ? `, from row ${low} on` : `, rows ${low} to ${high}`;
    const set = [...this.fixed].flatMap(([name, spans]) => spans.map((span) => {
      const [low, high, cell] = span;
      const { table } = model.columns.get(name);
      const counted = model.tables.some(({ count }) => count === name);
      const value = counted ? `${high}` : label(name, cell);
      const forget = () => {
        const left = spans.filter((one) => one !== span);
        if (left.length) this.fixed.set(name, left);
        else this.fixed.delete(name);
      };
      return { how: "do", said: `set: ${name} = ${value}${table ? rows(table, low, high) : ""}`, forget };
    }));
    const seen = [...this.evidence].map(([name, cell]) => {
      return { how: "given", said: `seen: ${name} = ${label(name, cell)}`, forget: () => this.evidence.delete(name) };
    });
    return [...set, ...seen];
  }

  show() {
    const { model, at } = this;
    at("asked").replaceChildren(...this.told().map(({ how, said, forget }) =>
      made("li", { class: how }, said, made("button", {
        type: "button", "aria-label": `Remove ${said}`,
        onclick: () => {
          forget();
          this.show();
        },
      }, "×"))));
    const asked = this.fixed.size + this.evidence.size > 0;
    at("clear").hidden = !asked;
    at("nothing").hidden = asked;
    this.now = null;
    this.after = null;
    let problem = model.refusal([...this.fixed.keys()]);
    if (asked && !problem) {
      try {
        this.after = model.draw(PEOPLE, this.fixed, this.evidence, 1);
        this.now = model.laws(this.after);
      } catch (error) {
        problem = error instanceof Impossible ? "What is asked for never happens under this model." : error.message;
      }
    }
    at("refusal").hidden = !problem;
    at("refusal").textContent = problem;
    this.showCards();
    this.showHistories();
  }

  showCards() {
    const { model, at } = this;
    const held = (name) => this.fixed.has(name) || this.evidence.has(name);
    const card = (name, chart, note) =>
      made("div", { class: held(name) ? "card held" : "card" }, made("h3", {}, name), made("p", {}, note), chart);
    const ofPeople = [...model.people.columns].map(([name, column]) => {
      const [was, now] = [this.was.get(name), this.now?.get(name)];
      const settable = !model.refusal([name]) && !model.tables.some(({ count }) => count === name);
      const choose = settable ? (cell) => this.set(name, cell, 1, 1) : null;
      const chart = column.edges ? histogramChart(column, was, now) : barChart(column, was, now, null, choose);
      const note = this.fixed.has(name) ? "set by intervention" : this.evidence.has(name) ? "only those with this value" : "";
      return card(name, chart, note || "\u00a0");
    });
    at("people").replaceChildren(...ofPeople);
    at("tables").replaceChildren(...model.tables.flatMap((table) => {
      const cards = table.columns.map((column) => {
        const [was, now] = [this.was.get(column.name), this.now?.get(column.name)];
        const alone = column.name === table.start;
        const note = alone ? "days from the origin to the first row"
          : column.name === table.gap ? "days from the row before, by the number of the row" : "by the number of the row";
        const kept = (laws) => laws?.map((law, place) => (column.name === table.gap && place === 0 ? null : law));
        const chart = alone ? barChart(column, was[0], now?.[0], null, null) : numberedChart(column, kept(was), kept(now));
        return card(column.name, chart, this.fixed.has(column.name) ? `set by intervention; ${note}` : note);
      });
      return [made("h3", { class: "of-table" }, table.name), made("div", { class: "cards" }, ...cards)];
    }));
  }

  /** Show some people with several rows, before and under what is asked. */
  showHistories() {
    const { model, at } = this;
    const found = model.columns.get(at("history").value);
    at("histories").replaceChildren();
    if (!found) return;
    const { column, table } = found;
    const drawn = this.after ?? this.before;
    const rows = drawn.rows.get(table.name);
    const lines = [];
    for (let row = 0; row < rows.person.length && lines.length < HISTORIES; row += 1) {
      if (rows.number[row] !== Math.min(3, table.most)) continue;
      const start = row - rows.number[row] + 1;
      let end = row;
      while (rows.person[end + 1] === rows.person[row]) end += 1;
      lines.push({ whom: rows.person[row], ...this.historyOf(table, column, rows, start, end) });
    }
    const longest = Math.max(1, ...lines.map(({ days }) => days.at(-1)));
    const about = (whom) => [...model.people.columns]
      .filter(([name]) => !model.tables.some(({ count }) => count === name)).slice(0, 4)
      .map(([name, own]) => `${name.slice(model.data.name.length + 1)} ${own.labels[drawn.people.get(name)[whom]]}`);
    at("histories").replaceChildren(...lines.map(({ whom, days, cells }) =>
      made("div", { class: "card" }, made("h3", {}, `synthetic person ${whom + 1}`),
        made("p", {}, about(whom).join(", ") || "\u00a0"), historyChart(column, days, cells, longest))));
  }

  /** Return the days since the first row and the levels of one person; days are drawn evenly inside their bins. */
  historyOf(table, column, rows, start, end) {
    const random = generator(31 + rows.person[start]);
    const { edges } = table.columns.find(({ name }) => name === table.gap);
    const days = [0];
    for (let row = start + 1; row <= end; row += 1) {
      const bin = rows.codes.get(table.gap)[row];
      days.push(days.at(-1) + Math.floor(edges[bin] + random() * (edges[bin + 1] - edges[bin])));
    }
    return { days, cells: rows.codes.get(column.name).slice(start, end + 1) };
  }

  // ---- files

  csv() {
    const lines = [csvLine(["column", "row", "value", "as it was", "now"])];
    for (const [name, { column, table }] of this.model.columns) {
      const [was, now] = [this.was.get(name), this.now?.get(name)];
      const parts = table ? was.map((law, place) => [`${place + 1}`, law, now?.[place]]) : [["", was, now]];
      for (const [row, before, after] of parts) {
        column.labels.forEach((label, cell) =>
          lines.push(csvLine([name, row, label, before ? before[cell] : "", after ? after[cell] : ""])));
      }
    }
    return lines.join("");
  }

  /** Save 1,000 people, and the rows of each table, as one file each. */
  saveRows() {
    const drawn = this.model.draw(1000, this.fixed, this.evidence, 2);
    const label = (name, cell) => this.model.columns.get(name).column.labels[cell];
    const own = [...this.model.people.columns.keys()];
    const lines = [csvLine(["person", ...own])];
    for (let whom = 0; whom < 1000; whom += 1) {
      lines.push(csvLine([whom + 1, ...own.map((name) => label(name, drawn.people.get(name)[whom]))]));
    }
    save(`what-if-${this.model.data.name}.csv`, lines.join(""), "text/csv");
    for (const table of this.model.tables) {
      const { person, number, codes } = drawn.rows.get(table.name);
      const names = [...codes.keys()];
      const day = (name, row) => (name === table.start) === (number[row] === 1) || ![table.start, table.gap].includes(name);
      const of = (name, row) => (day(name, row) ? label(name, codes.get(name)[row]) : "");
      const rows = person.map((whom, row) => csvLine([whom + 1, number[row], ...names.map((name) => of(name, row))]));
      save(`what-if-${table.name}.csv`, csvLine(["person", "row", ...names]) + rows.join(""), "text/csv");
    }
  }
}

const explored = new LinkedModel(JSON.parse(document.getElementById("model").textContent));
globalThis.escudo = { model: explored, page: new LinkedPage(explored) };
