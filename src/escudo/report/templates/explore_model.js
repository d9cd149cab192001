// A released model, asked in the browser: what a do() does to each column, what a condition goes with.
//
// The same rules as escudo.synthesis: laws along the graph under do(), observed laws otherwise; do() is refused
// where the stated graph leaves the answer open or a hidden cause confounds it; each public rule of the schema is a
// factor, the share of each pair of cells that holds it. Answers are added up exactly where
// the tables stay small, and drawn with a seeded generator otherwise. Noise is carried through by drawing it again.
"use strict";

const EXACT_CELLS = 1 << 15; // the largest table that is added up
const DRAWN = 40000; // rows drawn where that is too small
const REPLICATES = 24; // times the noise is drawn again

/** Return a generator of numbers in [0, 1) from a seed: xoshiro128**, started by splitmix32. */
function generator(seed) {
  let mix = seed >>> 0;
  const state = new Uint32Array(4);
  for (let place = 0; place < 4; place += 1) {
    mix = (mix + 0x9e3779b9) >>> 0;
    let word = mix ^ (mix >>> 16);
    word = Math.imul(word, 0x21f0aaad);
    word ^= word >>> 15;
    word = Math.imul(word, 0x735a2d97);
    state[place] = (word ^ (word >>> 15)) >>> 0;
  }
  const turn = (x, k) => ((x << k) | (x >>> (32 - k))) >>> 0;
  const next = () => {
    const result = Math.imul(turn(Math.imul(state[1], 5) >>> 0, 7), 9) >>> 0;
    const kept = (state[1] << 9) >>> 0;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= kept;
    state[3] = turn(state[3], 11);
    return result;
  };
  return () => (next() * 2097152 + (next() >>> 11)) / 9007199254740992;
}

/** Return a standard normal number. */
function normal(random) {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

class NotIdentifiable extends Error {}

class Impossible extends Error {}

/** A law p(x | parents): its probabilities for one configuration of the parents, written into `into`. */
class Law {
  constructor(told) {
    Object.assign(this, told); // kind, parents, sizes, size, and numbers by name
  }

  fill(codes, into) {
    const { size } = this;
    if (this.kind === "table") {
      let row = 0;
      for (let place = 0; place < codes.length; place += 1) row = row * this.sizes[place] + codes[place];
      for (let x = 0; x < size; x += 1) into[x] = this.table[row * size + x];
    } else if (this.kind === "logit") {
      let most = -Infinity;
      for (let x = 0; x < size; x += 1) {
        let sum = this.intercept[x];
        for (let place = 0; place < codes.length; place += 1) sum += this.weights[place][codes[place] * size + x];
        into[x] = sum;
        most = Math.max(most, sum);
      }
      let total = 0;
      for (let x = 0; x < size; x += 1) total += into[x] = Math.exp(into[x] - most);
      for (let x = 0; x < size; x += 1) into[x] /= total;
    } else {
      const fired = codes.map((code, place) => this.strengths[place][code]);
      const on =
        this.kind === "max"
          ? Math.max(this.leak, ...fired)
          : 1 - fired.reduce((silent, strength) => silent * (1 - strength), 1 - this.leak);
      into[0] = 1 - on;
      into[1] = on;
    }
  }

  get cells() {
    return this.sizes.reduce((product, size) => product * size, this.size);
  }

  /** Return the law as one table over (parents, x). */
  dense() {
    if (this.kind === "table") return this.table;
    const table = new Float64Array(this.cells);
    const row = new Float64Array(this.size);
    const codes = this.sizes.map(() => 0);
    for (let start = 0; start < table.length; start += this.size) {
      this.fill(codes, row);
      table.set(row, start);
      for (let place = codes.length - 1; place >= 0; place -= 1) {
        codes[place] += 1;
        if (codes[place] < this.sizes[place]) break;
        codes[place] = 0;
      }
    }
    return table;
  }

  renamed(names) {
    return new Law({ ...this, parents: this.parents.map((parent) => names.get(parent) ?? parent) });
  }
}

/** Return names with what they are given before them; `fixed` ones need nothing before them. */
function ordered(laws, fixed) {
  const done = new Set();
  const order = [];
  const visit = (name) => {
    if (done.has(name)) return;
    done.add(name);
    if (!fixed.has(name)) laws.get(name).parents.forEach(visit);
    order.push(name);
  };
  for (const name of laws.keys()) visit(name);
  return order;
}

/** Return the laws to draw along when columns are set, in an order to draw them (escudo's laws_under). */
function lawsUnder(causal, observed, fixed) {
  const inOrder = (laws, set) => new Map(ordered(laws, set).map((name) => [name, laws.get(name)]));
  if (fixed.size === 0 || observed.size === 0) {
    return inOrder(observed.size ? observed : causal, observed.size ? new Set() : fixed);
  }
  const moved = new Set(fixed);
  for (const name of ordered(causal, new Set())) {
    if (causal.get(name).parents.some((parent) => moved.has(parent))) moved.add(name);
  }
  const shadow = new Map([...moved].map((name) => [name, `${name}\u0000as it was`]));
  const laws = new Map();
  const waiting = [...causal.keys()].filter((name) => !moved.has(name));
  while (waiting.length) {
    const name = waiting.pop();
    const asItWas = shadow.get(name) ?? name;
    if (!laws.has(asItWas)) {
      waiting.push(...observed.get(name).parents.filter((parent) => moved.has(parent)));
      laws.set(asItWas, observed.get(name).renamed(shadow));
    }
  }
  for (const [name, law] of causal) if (moved.has(name)) laws.set(name, law);
  return inOrder(laws, fixed);
}

// ---- exact answers: factors are multiplied and summed out, the smallest table first

function product(left, right) {
  const names = [...left.names, ...right.names.filter((name) => !left.names.includes(name))];
  const size = (name) =>
    left.names.includes(name) ? left.sizes[left.names.indexOf(name)] : right.sizes[right.names.indexOf(name)];
  const sizes = names.map(size);
  const cells = sizes.reduce((a, b) => a * b, 1);
  const steps = (factor) => {
    let step = 1;
    const found = new Map();
    for (let place = factor.names.length - 1; place >= 0; place -= 1) {
      found.set(factor.names[place], step);
      step *= factor.sizes[place];
    }
    return names.map((name) => found.get(name) ?? 0);
  };
  const [ofLeft, ofRight] = [steps(left), steps(right)];
  const table = new Float64Array(cells);
  const code = new Int32Array(names.length);
  let a = 0;
  let b = 0;
  for (let cell = 0; cell < cells; cell += 1) {
    table[cell] = left.table[a] * right.table[b];
    for (let place = names.length - 1; place >= 0; place -= 1) {
      code[place] += 1;
      a += ofLeft[place];
      b += ofRight[place];
      if (code[place] < sizes[place]) break;
      a -= ofLeft[place] * sizes[place];
      b -= ofRight[place] * sizes[place];
      code[place] = 0;
    }
  }
  return { names, sizes, table };
}

/** Return a factor without one of its names: summed, or at one value where `at` is given. */
function without(factor, name, at) {
  const place = factor.names.indexOf(name);
  const after = factor.sizes.slice(place + 1).reduce((a, b) => a * b, 1);
  const size = factor.sizes[place];
  const before = factor.table.length / size / after;
  const table = new Float64Array(before * after);
  const [from, to] = at === undefined ? [0, size] : [at, at + 1];
  for (let i = 0; i < before; i += 1) {
    for (let x = from; x < to; x += 1) {
      const start = (i * size + x) * after;
      for (let j = 0; j < after; j += 1) table[i * after + j] += factor.table[start + j];
    }
  }
  const rest = (list) => list.filter((_, other) => other !== place);
  return { names: rest(factor.names), sizes: rest(factor.sizes), table };
}

/** Return the law of one column, or null where a table would be too large. */
function exact(laws, fixed, evidence, target, rules) {
  const needed = new Set();
  const waiting = [target, ...evidence.keys(), ...rules.flatMap((rule) => rule.names)];
  while (waiting.length) {
    const name = waiting.pop();
    if (needed.has(name)) continue;
    needed.add(name);
    if (!fixed.has(name)) waiting.push(...laws.get(name).parents);
  }
  const known = new Map([...fixed, ...evidence]);
  let factors = [];
  const add = (whole) => {
    let factor = whole;
    for (const one of whole.names) if (known.has(one)) factor = without(factor, one, known.get(one));
    factors.push(factor);
  };
  for (const name of needed) {
    if (fixed.has(name)) continue;
    const law = laws.get(name);
    if (law.cells > 8 * EXACT_CELLS) return null;
    add({ names: [...law.parents, name], sizes: [...law.sizes, law.size], table: law.dense() });
  }
  rules.forEach(add);
  const left = new Set([...needed].filter((name) => !known.has(name) && name !== target));
  const scope = (name) => {
    const sizes = new Map();
    for (const factor of factors) {
      if (factor.names.includes(name)) factor.names.forEach((one, place) => sizes.set(one, factor.sizes[place]));
    }
    return [...sizes.values()].reduce((a, b) => a * b, 1);
  };
  while (left.size) {
    const [name, cells] = [...left].map((one) => [one, scope(one)]).reduce((a, b) => (b[1] < a[1] ? b : a));
    if (cells > EXACT_CELLS) return null;
    const touching = factors.filter((factor) => factor.names.includes(name));
    factors = factors.filter((factor) => !factor.names.includes(name));
    factors.push(without(touching.reduce(product), name));
    left.delete(name);
  }
  const size = laws.get(target).size;
  if (known.has(target)) {
    const scale = factors.reduce((all, factor) => all * factor.table[0], 1);
    if (!(scale > 0)) throw new Impossible();
    return Float64Array.from({ length: size }, (_, x) => (x === known.get(target) ? 1 : 0));
  }
  const start = { names: [target], sizes: [size], table: new Float64Array(size).fill(1) };
  const { table } = factors.reduce(product, start);
  const total = table.reduce((a, b) => a + b, 0);
  if (!(total > 0)) throw new Impossible();
  return table.map((mass) => mass / total);
}

// ---- drawn answers

/** Draw rows of cells, each with its weight: the probability of what is observed, given what was drawn before it,
 * times the share of it that holds the rules. */
function drawn(laws, fixed, evidence, rows, seed, rules) {
  const random = generator(seed);
  const weights = new Float64Array(rows).fill(1);
  const codes = new Map();
  for (const [name, law] of laws) {
    const column = new Int32Array(rows);
    codes.set(name, column);
    if (fixed.has(name)) {
      column.fill(fixed.get(name));
      continue;
    }
    const parents = law.parents.map((parent) => codes.get(parent));
    const at = new Array(parents.length).fill(0);
    const chances = new Float64Array(law.size);
    const seen = evidence.get(name);
    for (let row = 0; row < rows; row += 1) {
      for (let place = 0; place < parents.length; place += 1) at[place] = parents[place][row];
      law.fill(at, chances);
      if (seen !== undefined) {
        column[row] = seen;
        weights[row] *= chances[seen];
        continue;
      }
      let point = random();
      let x = 0;
      while (x < law.size - 1 && (point -= chances[x]) >= 0) x += 1;
      while (x > 0 && chances[x] === 0) x -= 1;
      column[row] = x;
    }
  }
  for (const { names, sizes, table } of rules) {
    const [one, other] = names.map((name) => codes.get(name));
    for (let row = 0; row < rows; row += 1) weights[row] *= table[one[row] * sizes[1] + other[row]];
  }
  return { codes, weights };
}

function shares(column, weights, size) {
  const found = new Float64Array(size);
  let total = 0;
  for (let row = 0; row < column.length; row += 1) {
    found[column[row]] += weights[row];
    total += weights[row];
  }
  if (!(total > 0)) throw new Impossible();
  return found.map((mass) => mass / total);
}

// ---- the model

class ExploredModel {
  constructor(data) {
    this.data = data;
    this.columns = new Map(data.columns.map((column) => [column.name, column]));
    const laws = (told) => new Map(told.map(({ column, ...law }) => [column, new Law(law)]));
    this.causal = laws(data.laws);
    this.observed = laws(data.observed);
    this.rules = data.rules.map(({ columns: names, shares: table }) => {
      return { names, sizes: names.map((name) => this.columns.get(name).labels.length), table };
    });
    this.replicates = null;
  }

  /** Return the law of each column that is asked for, where columns are set and others observed. */
  marginals(fixed, evidence, asked, causal = this.causal, observed = this.observed, seed = 1) {
    const laws = lawsUnder(causal, observed, new Set(fixed.keys()));
    const found = new Map();
    let sample = null;
    let allExact = true;
    for (const name of asked) {
      let law = exact(laws, fixed, evidence, name, this.rules);
      if (law === null) {
        sample ??= drawn(laws, fixed, evidence, DRAWN, seed, this.rules);
        law = shares(sample.codes.get(name), sample.weights, this.columns.get(name).labels.length);
        allExact = false;
      }
      found.set(name, law);
    }
    return { laws: found, exact: allExact };
  }

  /** Return rows of cells under the same question, by resampling where something is observed or ruled out. */
  rows(count, fixed, evidence, seed) {
    const laws = lawsUnder(this.causal, this.observed, new Set(fixed.keys()));
    if (evidence.size + this.rules.length === 0) return drawn(laws, fixed, evidence, count, seed, []).codes;
    const pool = drawn(laws, fixed, evidence, Math.max(20 * count, 10000), seed, this.rules);
    let total = 0;
    let squares = 0;
    for (const weight of pool.weights) {
      total += weight;
      squares += weight * weight;
    }
    if (!(total > 0)) throw new Impossible();
    if (total * total < (count / 10) * squares) throw new Error("This condition is too rare to draw that many rows.");
    const start = generator(seed + 1)();
    const chosen = [];
    let sum = 0;
    let row = -1;
    for (let place = 0; place < count; place += 1) {
      const point = ((place + start) / count) * total;
      while (sum <= point && row < pool.weights.length - 1) sum += pool.weights[(row += 1)];
      chosen.push(row);
    }
    return new Map([...pool.codes].map(([name, column]) => [name, Int32Array.from(chosen, (one) => column[one])]));
  }

  /** Return laws whose tables met fresh noise of the size that the release had, so many times. */
  noisy() {
    if (this.replicates) return this.replicates;
    const rows = this.data.rows;
    const random = generator(20260101);
    const masses = this.masses();
    this.replicates = Array.from({ length: REPLICATES }, () => {
      const laws = new Map();
      for (const [name, law] of this.causal) {
        const noise = this.data.noise[name];
        if (!noise || law.kind !== "table") {
          laws.set(name, law);
          continue;
        }
        const size = law.size;
        const ways = law.table.length / size;
        const noisy = new Float64Array(law.table.length);
        const along = new Float64Array(size);
        for (let cell = 0; cell < noisy.length; cell += 1) {
          noisy[cell] = noise.family * normal(random);
          along[cell % size] += noisy[cell];
        }
        // The column was counted by itself as well: its own sums have the noise of both counts together.
        const joint = noise.single ? 1 / Math.sqrt(1 / (ways * noise.family ** 2) + 1 / noise.single ** 2) : null;
        for (let x = 0; x < size; x += 1) {
          const moved = joint === null ? 0 : (joint * normal(random) - along[x]) / ways;
          for (let way = 0; way < ways; way += 1) noisy[way * size + x] += moved;
        }
        for (let way = 0; way < ways; way += 1) {
          let total = 0;
          for (let x = 0; x < size; x += 1) {
            const cell = way * size + x;
            total += noisy[cell] = Math.max(rows * masses.get(name)[way] * law.table[cell] + noisy[cell], 0);
          }
          for (let x = 0; x < size; x += 1) {
            const cell = way * size + x;
            noisy[cell] = total > 0 ? noisy[cell] / total : 1 / size;
          }
        }
        laws.set(name, new Law({ ...law, table: noisy }));
      }
      return laws;
    });
    return this.replicates;
  }

  /** Return how often each configuration of a column's parents occurs, for every column, from rows along the graph. */
  masses() {
    const { codes } = drawn(lawsUnder(this.causal, new Map(), new Set()), new Map(), new Map(), DRAWN, 7, []);
    const found = new Map();
    for (const [name, law] of this.causal) {
      const mass = new Float64Array(law.cells / law.size);
      const parents = law.parents.map((parent) => codes.get(parent));
      for (let row = 0; row < DRAWN; row += 1) {
        let way = 0;
        for (let place = 0; place < parents.length; place += 1) way = way * law.sizes[place] + parents[place][row];
        mass[way] += 1 / DRAWN;
      }
      found.set(name, mass);
    }
    return found;
  }

  // ---- what may be asked (escudo.synthesis: check_settled and check_identified)

  /** Throw if the graph does not say what setting columns does to those that are asked for. */
  check(intervened, asked) {
    if (this.data.stated) this.checkSettled(this.data.stated, intervened, asked);
    this.checkIdentified(this.data.graph, intervened);
  }

  checkSettled(stated, together, asked) {
    const groups = new Map(Object.entries(stated.groups));
    const nodeOf = new Map();
    for (const node of stated.nodes) for (const column of groups.get(node) ?? [node]) nodeOf.set(column, node);
    const wanted = asked.filter((column) => !together.includes(column));
    for (const name of together) {
      if (stated.nodes.length === 0) {
        throw new NotIdentifiable(
          `What setting ‘${name}’ does cannot be said: the model was made without a causal graph, or does not ` +
            "follow it, so columns at most go together in it. Look at those with a value instead, if an " +
            "association is enough.",
        );
      }
      const silent = [name, ...wanted].find((column) => !nodeOf.has(column));
      if (silent !== undefined) {
        const whom = silent === name ? "" : ` to ‘${silent}’`;
        throw new NotIdentifiable(
          `What setting ‘${name}’ does${whom} cannot be said: the graph does not name ‘${silent}’.`,
        );
      }
    }
    const barred = new Set(together.map((name) => nodeOf.get(name)));
    const onwards = (start, kept) => {
      const found = new Set([start]);
      const waiting = [start];
      while (waiting.length) {
        const here = waiting.pop();
        const next = [
          ...stated.edges.filter(([from]) => from === here).map(([, to]) => to),
          ...stated.lines.filter((line) => line.includes(here)).map(([a, b]) => (a === here ? b : a)),
        ];
        for (const node of next) {
          if (!kept.has(node) && !found.has(node)) {
            found.add(node);
            waiting.push(node);
          }
        }
      }
      return found;
    };
    for (const name of together) {
      const here = nodeOf.get(name);
      const reasons = [];
      for (const [a, b] of stated.lines.filter((line) => line.includes(here))) {
        const line = a === here ? b : a;
        if (!barred.has(line)) {
          const reason = `depends on the direction of ${here} — ${line}, which nobody has stated.`;
          reasons.push([reason, onwards(line, barred)]);
        }
      }
      const others = new Set([...barred].filter((node) => node !== here));
      for (const node of onwards(here, others)) {
        if ((groups.get(node) ?? []).length > 1) {
          const reason = `cannot be said: ‘${node}’ stands for several columns.`;
          reasons.push([reason, onwards(node, others)]);
        }
      }
      for (const [reason, reached] of reasons) {
        const other = wanted.find((column) => reached.has(nodeOf.get(column)));
        if (other !== undefined) throw new NotIdentifiable(`What setting ‘${name}’ does to ‘${other}’ ${reason}`);
      }
    }
  }

  checkIdentified(graph, intervened) {
    if (graph.latents.length === 0) return;
    const latents = new Set(graph.latents);
    const parents = new Map(graph.nodes.map((node) => [node, []]));
    const children = new Map(graph.nodes.map((node) => [node, []]));
    for (const [from, to] of graph.edges) {
      parents.get(to).push(from);
      children.get(from).push(to);
    }
    const reach = (start, next) => {
      const found = new Set();
      const waiting = [...next(start)];
      while (waiting.length) {
        const node = waiting.pop();
        if (!found.has(node)) {
          found.add(node);
          waiting.push(...next(node));
        }
      }
      return found;
    };
    const hidden = (name) => {
      const seen = reach(name, (node) => (node === name || latents.has(node) ? parents.get(node) : []));
      return new Set([...seen].filter((node) => latents.has(node)));
    };
    const observed = graph.nodes.filter((node) => !latents.has(node));
    const behind = new Map(observed.map((node) => [node, hidden(node)]));
    for (const name of intervened) {
      const district = new Set([name]);
      let shared = new Set(behind.get(name));
      for (let grown = true; grown; ) {
        grown = false;
        for (const node of observed) {
          if (!district.has(node) && [...behind.get(node)].some((latent) => shared.has(latent))) {
            district.add(node);
            shared = new Set([...shared, ...behind.get(node)]);
            grown = true;
          }
        }
      }
      const below = reach(name, (node) => children.get(node));
      const affected = [...below].filter((node) => district.has(node)).sort();
      if (affected.length) {
        const latent = [...behind.get(name)].sort()[0];
        throw new NotIdentifiable(
          `The effect of setting ‘${name}’ is not identified: the unobserved ‘${latent}’ acts on it and, through ` +
            `what it confounds, on ‘${affected[0]}’, so the table alone cannot tell the two apart. Look at those ` +
            "with a value instead, if an association is enough.",
        );
      }
    }
  }

  /** Return whether a question about some columns is refused, in words; an empty text if it is not. */
  refusal(fixed, evidence, asked) {
    if (fixed.size === 0) return "";
    try {
      this.check([...fixed.keys()], [...asked, ...evidence.keys()]);
      return "";
    } catch (error) {
      if (error instanceof NotIdentifiable) return error.message;
      throw error;
    }
  }

  /** Return the mean of a law among cells that are numbers; null where there are none. */
  mean(name, law) {
    const { values } = this.columns.get(name);
    if (!values) return null;
    let total = 0;
    let sum = 0;
    values.forEach((value, cell) => {
      total += law[cell];
      sum += law[cell] * value;
    });
    return total > 0 ? sum / total : null;
  }

  /** Return the standard deviation that noise gives to what `figure` reads off the laws; null where it is unknown. */
  spread(fixed, evidence, asked, figure) {
    if (!this.data.noise || !asked.some((name) => this.touched(name))) return null;
    const found = [];
    for (const laws of this.noisy()) {
      try {
        found.push(figure(this.marginals(fixed, evidence, asked, laws, new Map(), 1).laws));
      } catch (error) {
        if (!(error instanceof Impossible)) throw error;
      }
    }
    if (found.length < REPLICATES / 2) return null;
    const size = found[0].length;
    return Float64Array.from({ length: size }, (_, place) => {
      const values = found.map((one) => one[place]).filter(Number.isFinite);
      const mean = values.reduce((a, b) => a + b, 0) / values.length;
      return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
    });
  }

  /** Return whether the noise on every table that a column follows from, if by a rule, is known. */
  touched(name) {
    const waiting = [name, ...this.rules.flatMap((rule) => rule.names)];
    const seen = new Set();
    while (waiting.length) {
      const one = waiting.pop();
      if (seen.has(one)) continue;
      seen.add(one);
      if (!this.data.noise[one]) return false;
      waiting.push(...this.causal.get(one).parents);
    }
    return true;
  }
}
