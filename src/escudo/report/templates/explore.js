class Page {
  constructor(model) {
    this.model = model;
    this.names = [...model.columns.keys()];
    this.fixed = new Map();
    this.evidence = new Map();
    this.round = 0;
    const at = (id) => document.getElementById(id);
    this.at = at;
    this.was = model.marginals(new Map(), new Map(), this.names).laws;
    this.fillColumns(at("column"));
    this.fillColumns(at("treatment"));
    this.fillColumns(at("outcome"));
    this.fillValues();
    at("column").addEventListener("change", () => this.fillValues());
    at("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.set(at("how").value, at("column").value, Number(at("value").value));
    });
    at("clear").addEventListener("click", () => {
      this.fixed.clear();
      this.evidence.clear();
      this.show();
    });
    at("treatment").addEventListener("change", () => this.showEffect());
    at("outcome").addEventListener("change", () => this.showEffect());
    at("save-csv").addEventListener("click", () => save("what-if.csv", this.csv(), "text/csv"));
    at("save-svg").addEventListener("click", () => save("what-if.svg", this.poster(), "image/svg+xml"));
    at("save-png").addEventListener("click", () => this.png());
    at("save-rows").addEventListener("click", () => this.saveRows());
    at("effect-csv").addEventListener("click", () => save("effect.csv", this.effectCsv(), "text/csv"));
    this.start();
    this.show();
  }

  /** Begin with an effect that the graph settles, along its first arrow if there is one. */
  start() {
    const { edges, latents } = this.model.data.graph;
    const arrow = edges.find(([a, b]) => !latents.includes(a) && !this.model.refusal(new Map([[a, 0]]), new Map(), [b]));
    const [first, second] = arrow ?? [this.names[0], this.names[1] ?? this.names[0]];
    this.at("treatment").value = first;
    this.at("outcome").value = second;
    this.at("column").value = first;
    this.fillValues();
  }

  fillColumns(select) {
    select.replaceChildren(...this.names.map((name) => made("option", { value: name }, name)));
  }

  fillValues() {
    const column = this.model.columns.get(this.at("column").value);
    this.at("value").replaceChildren(...column.labels.map((label, cell) => made("option", { value: cell }, label)));
  }

  set(how, name, cell) {
    const [mine, other] = how === "do" ? [this.fixed, this.evidence] : [this.evidence, this.fixed];
    other.delete(name);
    mine.set(name, cell);
    this.show();
  }

  /** Show every column under what is asked; noise follows when the page has had time to draw. */
  show() {
    const { model, at } = this;
    this.round += 1;
    at("asked").replaceChildren(
      ...[["do", this.fixed], ["given", this.evidence]].flatMap(([how, values]) =>
        [...values].map(([name, cell]) => {
          const said = `${how === "do" ? "set" : "seen"}: ${name} = ${model.columns.get(name).labels[cell]}`;
          return made("li", { class: how }, said, made("button", {
            type: "button", "aria-label": `Remove ${said}`,
            onclick: () => {
              values.delete(name);
              this.show();
            },
          }, "×"));
        }),
      ),
    );
    const asked = this.fixed.size + this.evidence.size > 0;
    at("clear").hidden = !asked;
    at("nothing").hidden = asked;
    this.now = new Map();
    this.refused = new Map();
    let problem = "";
    if (asked) {
      problem = this.evidence.size ? model.refusal(this.fixed, this.evidence, []) : "";
      for (const name of problem ? [] : this.names) {
        const refusal = model.refusal(this.fixed, this.evidence, [name]);
        if (refusal) this.refused.set(name, refusal);
      }
      const answered = problem ? [] : this.names.filter((name) => !this.refused.has(name));
      try {
        this.found = model.marginals(this.fixed, this.evidence, answered);
        this.now = this.found.laws;
      } catch (error) {
        if (!(error instanceof Impossible)) throw error;
        problem = this.evidence.size
          ? "What is asked for never happens under this model. Setting the same columns is defined."
          : "What is set cannot be: the rules of the table leave no row.";
      }
    }
    const reasons = [...new Set(this.refused.values())];
    at("refusal").hidden = !problem && reasons.length === 0;
    at("refusal").textContent = problem || reasons[0] || "";
    at("how-known").textContent = !asked || problem ? ""
      : this.found.exact ? "Added up exactly from the model." : `Drawn from the model, ${DRAWN.toLocaleString("en")} rows.`;
    this.spreads = new Map();
    this.drawCards();
    this.showEffect();
    const round = this.round;
    if (this.now.size && model.data.noise) this.later(() => this.addNoise(round, [...this.now.keys()]));
  }

  later(work) {
    setTimeout(work, 0);
  }

  /** Work out the noise of a few columns at a time, so that the page stays at hand. */
  addNoise(round, names) {
    if (round !== this.round || names.length === 0) return;
    for (const name of names.slice(0, 4)) {
      if (!this.fixed.has(name) && !this.evidence.has(name)) {
        const spread = this.model.spread(this.fixed, this.evidence, [name], (laws) => laws.get(name));
        if (spread) {
          this.spreads.set(name, spread);
          this.drawCard(name);
        }
      }
    }
    this.later(() => this.addNoise(round, names.slice(4)));
  }

  drawCards() {
    this.cards = new Map(this.names.map((name) => [name, made("div", { class: "card" })]));
    this.at("cards").replaceChildren(...this.cards.values());
    this.names.forEach((name) => this.drawCard(name));
  }

  chart(name) {
    const column = this.model.columns.get(name);
    const [was, now, spread] = [this.was.get(name), this.now.get(name), this.spreads.get(name)];
    if (column.edges) return histogramChart(column, was, now, spread);
    return barChart(column, was, now, spread, (cell) => this.set("do", name, cell));
  }

  drawCard(name) {
    const model = this.model;
    const column = model.columns.get(name);
    const [was, now] = [this.was.get(name), this.now.get(name)];
    const before = model.mean(name, was);
    const after = now ? model.mean(name, now) : null;
    const gone = column.missing === null || !column.edges ? "" : `, missing ${percent((now ?? was)[column.missing])}`;
    const said = column.days ? (number) => new Date(864e5 * Math.round(number)).toISOString().slice(0, 10) : figure;
    let note = before === null ? "" : after === null ? `mean ${said(before)}` : `mean ${said(before)} → ${said(after)}`;
    if (this.fixed.has(name)) note = "set by intervention";
    if (this.evidence.has(name)) note = "only those with this value";
    if (this.refused.has(name)) note = "cannot be said: shown as it was";
    this.cards.get(name).replaceChildren(
      made("h3", {}, name),
      made("p", {}, `${note}${note && gone ? gone : gone.slice(2)}` || "\u00a0"),
      this.chart(name),
    );
    this.cards.get(name).classList.toggle("refused", this.refused.has(name));
    this.cards.get(name).classList.toggle("held", this.fixed.has(name) || this.evidence.has(name));
  }

  // ---- the effect of one column on another

  showEffect() {
    const { model, at } = this;
    const [treatment, outcome] = [at("treatment").value, at("outcome").value];
    const table = at("effect");
    this.effect = null;
    at("effect-refusal").hidden = true;
    if (treatment === outcome) {
      table.replaceChildren();
      at("effect-refusal").hidden = false;
      at("effect-refusal").textContent = "Choose two columns.";
      return;
    }
    const refusal = model.refusal(new Map([[treatment, 0]]), new Map(), [outcome]);
    if (refusal) {
      table.replaceChildren();
      at("effect-refusal").hidden = false;
      at("effect-refusal").textContent = refusal;
      return;
    }
    const [source, target] = [model.columns.get(treatment), model.columns.get(outcome)];
    const levels = shownCells(source).cells;
    const rows = levels.flatMap((cell) => {
      const fixed = new Map([[treatment, cell]]);
      try {
        const law = model.marginals(fixed, new Map(), [outcome]).laws.get(outcome);
        return [{ cell, fixed, law, mean: model.mean(outcome, law), spread: null }];
      } catch (error) {
        if (!(error instanceof Impossible)) throw error;
        return []; // the rules leave no row
      }
    });
    this.effect = { treatment, outcome, rows };
    this.drawEffect();
    const round = (this.effectRound = (this.effectRound ?? 0) + 1);
    const next = (place) => {
      if (round !== this.effectRound || place >= rows.length) return;
      const row = rows[place];
      row.spread = model.spread(row.fixed, new Map(), [outcome], (laws) => {
        const law = laws.get(outcome);
        return [...law, model.mean(outcome, law) ?? NaN];
      });
      this.drawEffect();
      this.later(() => next(place + 1));
    };
    if (model.data.noise) this.later(() => next(0));
  }

  drawEffect() {
    const { treatment, outcome, rows } = this.effect;
    const [source, target] = [this.model.columns.get(treatment), this.model.columns.get(outcome)];
    const most = 6;
    const cells = target.values && target.edges ? [] : target.labels.map((_, cell) => cell).slice(0, most);
    const figured = Boolean(target.values) && (target.edges || target.kind !== "boolean");
    const cell = (value, sd, label) =>
      made("td", { class: "number", "data-label": label },
        made("span", {}, made("b", {}, value), sd === null ? "" : made("small", {}, ` ± ${sd}`)));
    const head = made("tr", {},
      made("th", { scope: "col" }, `${treatment} set to`),
      ...(figured ? [made("th", { scope: "col", class: "number" }, `mean of ${outcome}`)] : []),
      ...cells.map((one) => made("th", { scope: "col", class: "number" }, `${outcome} = ${target.labels[one]}`)),
    );
    const body = rows.slice(0, 40).map((row) =>
      made("tr", {},
        made("td", { class: "name" }, source.labels[row.cell]),
        ...(figured
          ? [cell(...measured(row.mean, row.spread ? 1.96 * row.spread[target.labels.length] : null), "mean")]
          : []),
        ...cells.map((one) =>
          cell(percent(row.law[one]), row.spread ? percent(1.96 * row.spread[one]) : null, target.labels[one])),
      ));
    this.at("effect").replaceChildren(made("thead", {}, head), made("tbody", {}, ...body));
  }

  // ---- files

  csv() {
    const lines = [csvLine(["column", "value", "as it was", "now", "noise (standard deviation)"])];
    for (const name of this.names) {
      const column = this.model.columns.get(name);
      const [was, now, spread] = [this.was.get(name), this.now.get(name), this.spreads.get(name)];
      column.labels.forEach((label, cell) =>
        lines.push(csvLine([name, label, was[cell], now ? now[cell] : "", spread ? spread[cell] : ""])));
    }
    return lines.join("");
  }

  effectCsv() {
    if (!this.effect) return csvLine(["treatment", "outcome"]);
    const { treatment, outcome, rows } = this.effect;
    const [source, target] = [this.model.columns.get(treatment), this.model.columns.get(outcome)];
    const lines = [csvLine([`do(${treatment})`, outcome, "share", "noise (standard deviation)"])];
    for (const row of rows) {
      target.labels.forEach((label, cell) =>
        lines.push(csvLine([source.labels[row.cell], label, row.law[cell], row.spread ? row.spread[cell] : ""])));
    }
    return lines.join("");
  }

  saveRows() {
    const count = 1000;
    const problem = this.model.refusal(this.fixed, this.evidence, this.names);
    if (problem) {
      this.at("refusal").hidden = false;
      this.at("refusal").textContent = `No rows were drawn. ${problem}`;
      return;
    }
    try {
      const codes = this.model.rows(count, this.fixed, this.evidence, 1);
      const lines = [csvLine(this.names)];
      const columns = this.names.map((name) => [this.model.columns.get(name).labels, codes.get(name)]);
      for (let row = 0; row < count; row += 1) lines.push(csvLine(columns.map(([labels, code]) => labels[code[row]])));
      save("what-if-rows.csv", lines.join(""), "text/csv");
    } catch (error) {
      this.at("refusal").hidden = false;
      this.at("refusal").textContent = error instanceof Impossible ? "What is asked for never happens." : error.message;
    }
  }

  /** Return all charts as one picture, with the colours they have now. */
  poster() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const across = Math.min(3, this.names.length);
    const gap = 40;
    const asked = [...this.at("asked").querySelectorAll("li")].map((one) => one.firstChild.textContent);
    let top = 70;
    const parts = [];
    for (let start = 0; start < this.names.length; start += across) {
      const charts = this.names.slice(start, start + across).map((name) => [name, this.chart(name)]);
      charts.forEach(([name, chart], place) => {
        const left = gap + place * (CARD + gap);
        const inner = made("g", { transform: `translate(${left} ${top + 14})` }, ...chart.childNodes);
        parts.push(made("text", { x: left, y: top, class: "name" }, name), inner);
      });
      top += Math.max(...charts.map(([, chart]) => Number(chart.getAttribute("height")))) + 60;
    }
    const width = gap + across * (CARD + gap);
    const sheet = `
      text { font: 12px system-ui, sans-serif; fill: ${colour("ink")}; } .end { text-anchor: end; }
      .soft, .tick { fill: ${colour("soft")}; } .tick { font-size: 11px; } .name { font-weight: 600; font-size: 14px; }
      .head { font-size: 18px; font-weight: 650; } .fill { fill: ${colour("bar")}; } .faint { opacity: .55; }
      .real { fill: none; stroke: ${colour("mark")}; stroke-width: 2; } .axis { stroke: ${colour("line")}; }
      .whisker { stroke: ${colour("ink")}; stroke-width: 1.6; } .cloud { fill: ${colour("accent")}; opacity: .3; }`;
    const picture = made("svg", { viewBox: `0 0 ${width} ${top}`, width, height: top },
      made("style", {}, sheet),
      made("rect", { width, height: top, fill: colour("paper") }),
      made("text", { x: gap, y: 36, class: "head" }, asked.join(", ") || "As it was"),
      ...parts);
    picture.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    return new XMLSerializer().serializeToString(picture);
  }

  async png() {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(this.poster())}`;
    await image.decode();
    const canvas = made("canvas", { width: 2 * image.width, height: 2 * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save("what-if.png", blob));
  }
}

const explored = new ExploredModel(JSON.parse(document.getElementById("model").textContent));
globalThis.escudo = { model: explored, page: new Page(explored) };
