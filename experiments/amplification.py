"""Does a causal model amplify privacy? Causal and associational models side by side, at the same ε.

Run from the repository's root::

    python experiments/amplification.py                    # every part that is not in the results yet
    python experiments/amplification.py --trained DIR      # with VAEs that an accelerator trained (see _twins.py)
    python experiments/amplification.py --only linear      # parts whose name holds a word

Parts are written to ``experiments/results/amplification.json`` as they are done, and ``amplification.md`` is made from
them. Without ``--trained`` the VAEs are trained here, ``--copies`` of each (hours on a CPU with the default);
``--quick`` is a smoke run that writes nothing.

*Causally Constrained Data Synthesis* says that a model that follows the causal graph is more useful, that its fitted
parameters move less when one record is replaced, and that it therefore gives away less at the same noise. Each of the
three is measured with the graph and without it, at equal ε (add/remove, δ = 1e-5), in tables drawn anew for each seed:

* **linear**: random linear Gaussian models of 8 columns, 1,000 rows, generator ``linear``;
* **Asia**, 1,000 rows: ``marginals``, and the paper's VAEs;
* **Pain1000**: the paper's condensed and plain VAEs.

*Utility*: the error of covariances, relative to their size. *Stability*: how far the released parameters move, under
the same noise and samples, when the record in one place is another: somebody else of the population, the person
furthest from their neighbours, or a record made up to stand out. *Attacks*: the corrected membership game, with the
ceiling that the noise allows beside it.

A causal VAE has more parameters than a plain one of the same layers, so a third one, without the graph, is widened
until it has as many (``wide``).
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from _paper import DATA, DELTA, RESULTS, SEED, Store, header, table_of
from _twins import BATCH, COPIES, EPSILONS, MODELS, ROWS, SEEDS, STEPS, TABLES, VAES, WORLDS, train
from numpy.typing import NDArray
from stability import COLUMNS, random_model

import escudo
from escudo._card import tracking
from escudo.attacks import attack, canary, ceiling_of, outlyingness
from escudo.attacks._attacker import train_classifier
from escudo.attacks._report import score_of
from escudo.attacks._victims import RowsWithRecord
from escudo.causal import CausalGraph, asia
from escudo.mechanisms import Purse
from escudo.privacy import (
    Budget,
    Guarantee,
    MemoryAccount,
    RepeatedEvent,
    SampledGaussianEvent,
    calibrate,
    guarantee_of,
)
from escudo.synthesis import prepare as prepare_generator
from escudo.synthesis import stability
from escudo.utility import Rows

Floats = NDArray[np.float64]

PRIVATE = (1.0, 3.0)
SIZES = (100, 200)  # fits that teach, and fits that are tested, of escudo's own generators
KEYS = 8  # noise that is drawn for the figures of utility and stability
REACH = 4.0  # bounds of the linear columns, in standard deviations
ATTACKS = (
    ("queries", "likelihood ratio"),
    ("queries", "forest"),
    ("queries", "logistic"),
    ("histogram", "forest"),
    ("histogram", "logistic"),
)
KINDS = tuple(world for world in WORLDS if world != "other")


# -- what the accelerator needs


def _noise(epsilon: float) -> float:
    return calibrate(_events, Budget(epsilon, DELTA))


def _events(noise: float) -> RepeatedEvent:
    step = SampledGaussianEvent(noise_multiplier=noise, sampling_probability=BATCH / ROWS, relation="add_remove")
    return RepeatedEvent(event=step, count=STEPS, relation="add_remove")


def prepare(out: Path, data: Path) -> None:
    """Draw each seed's table, its four records and the attacker's questions."""
    kept: dict[str, Any] = {f"noise/{epsilon:g}": _noise(epsilon) for epsilon in PRIVATE}
    for name in TABLES:
        table = table_of(name, data, rows=ROWS, tested=50_000)
        parents = table.parents(table.edges)
        first = tuple(sorted({cause for several in parents.values() for cause in several}))
        rest = tuple(place for place in parents if place not in set(first))
        units = [(first, ()), (rest, first)] if table.condensed else [((p,), several) for p, several in parents.items()]
        form = {"units": units, "columns": len(table.names), "condensed": table.condensed}
        kept[f"{name}/form"] = json.dumps(form)
        kept[f"{name}/edges"] = np.array([(cause, effect) for effect in parents for cause in parents[effect]])
        law = table.tested.astype(np.float64)
        population = table_of(name, data, rows=ROWS, tested=(ROWS + 2) * len(SEEDS)).tested
        for place, seed in enumerate(SEEDS):
            kept[f"{name}/{seed}/rows"] = _worlds(table, population[place * (ROWS + 2) :][: ROWS + 2], seed)
            kept[f"{name}/{seed}/queries"] = _queries(len(table.names), seed)
            kept[f"{name}/{seed}/covariances"] = np.cov(law, rowvar=False, bias=True).astype(np.float32)
            kept[f"{name}/{seed}/shares"] = law.mean(axis=0).astype(np.float32)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, **kept)
    print(f"{out}: {', '.join(TABLES)}, seeds {', '.join(map(str, SEEDS))}")


def _worlds(table: Any, codes: Any, seed: int) -> NDArray[np.uint8]:
    """Return 999 rows and the four records after them."""
    rng = np.random.default_rng([SEED, seed])
    every = table.rows(codes)
    target = int(np.argmax(outlyingness(every, rng)))
    others = rng.permutation(np.delete(np.arange(len(codes)), target))
    made_up = canary(every).codes
    return np.concatenate([codes[[*others[2:], target, *others[:2]]], made_up]).astype(np.uint8)


def _queries(width: int, seed: int) -> NDArray[np.int32]:
    """Return sets of one, two and three columns on which synthetic rows are compared with the target."""
    rng = np.random.default_rng([SEED, seed])
    sets = {(place,) * 3 for place in rng.permutation(width)[:50].tolist()}
    for size in (2, 3):
        drawn = {tuple(np.sort(rng.choice(width, size, replace=False)).tolist()) for _ in range(300)}
        sets |= {(*places, *places[-1:] * (3 - size)) for places in drawn}
    return np.array(sorted(sets), dtype=np.int32)


# -- one game


def _spread(scores: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {
        "accuracy": float(np.mean([score["accuracy"] for score in scores])),
        "auc": float(np.mean([score["auc"] for score in scores])),
        "best_auc": float(max(score["auc"] for score in scores)),
    }


def _ceiling(claim: Guarantee) -> dict[str, Any]:
    return ceiling_of(claim, "replace_one").to_json()


def played(kept: Mapping[str, Any], label: str, seed: int) -> dict[str, Any]:
    """Play the corrected game on copies that were trained side by side: one half teaches, the other is tested."""
    there = np.asarray(kept[f"{label}/there"], dtype=bool)
    half = there.size // 2
    scores = []
    for kind, classifier in ATTACKS:
        name = {"queries": "agree", "histogram": "ones"}[kind]
        features = np.asarray(kept[f"{label}/{name}"], dtype=np.float64) / ROWS
        judge = train_classifier(classifier, features[:half], there[:half], seed)
        scores.append(score_of(kind, classifier, there[half:], judge.scores(features[half:])).to_json())
    return {**_spread(scores), "learnt": half, "tested": there.size - half, "scores": scores}


# -- VAEs


def vaes(folder: Path, table: str, model: str) -> dict[str, Any]:
    """Return what was measured on trained VAEs of one table and model."""
    with np.load(folder / f"{table}-{model}.npz") as archive:
        kept = {name: archive[name] for name in archive.files}
    facts = json.loads(str(kept["facts"]))
    runs = {}
    for epsilon, seed in product(EPSILONS, SEEDS):
        label = f"{epsilon}/{seed}"
        if label in facts["runs"]:
            runs[label] = {**facts["runs"][label], "game": played(kept, label, seed)}
    ceilings = {
        epsilon: _ceiling(guarantee_of(_events(_noise(float(epsilon))), delta=DELTA))
        for epsilon in EPSILONS
        if epsilon != "inf"
    }
    return {"runs": runs, "ceilings": ceilings, **{key: facts[key] for key in ("parameters", "device", "jax")}}


# -- escudo's own generators


class _Table:
    """Encoded rows behind what the two generators ask of a private table; reading a frame takes longer than the fit."""

    unit, max_rows_per_person = "row", None

    def __init__(self, *parts: Rows):
        self._schema = parts[0].schema
        self.columns = self._schema.names
        self._codes = np.concatenate([part.codes for part in parts])
        self._numbers = np.concatenate([part.numbers for part in parts])

    def batches(self, size: int, columns: Sequence[str] | None = None, *, encode: str = "codes") -> Iterator[Floats]:
        """Yield all rows at once."""
        assert columns is None
        yield self._numbers if encode == "scaled" else self._codes

    def counts(self, tables: Sequence[Sequence[str]]) -> list[Any]:
        """Return contingency tables."""
        found = []
        for names in tables:
            shape = self._schema.shape(list(names))
            cells = np.ravel_multi_index(tuple(self._codes[:, [self.columns.index(n) for n in names]].T), shape)
            found.append(np.bincount(cells, minlength=math.prod(shape)).reshape(shape))
        return found


class _Victim:
    """One of escudo's generators, prepared once, as something to attack."""

    def __init__(self, schema: escudo.Schema, graph: CausalGraph | None, generator: str, epsilon: float):
        self._prepared = prepare_generator(
            schema,
            graph,
            generator=generator,
            epsilon=epsilon,
            delta=DELTA,
            relation="add_remove",
            public_rows=ROWS,
        )
        self.claim = self._prepared.plan.guarantee()

    def fitted(self, *parts: Rows, seed: int) -> Any:
        """Fit rows with seeded noise."""
        table: Any = _Table(*parts)
        account, rng = MemoryAccount(relation="add_remove"), np.random.default_rng(seed)
        return self._prepared.run(table, Purse(account, rng, plan=self._prepared.plan, guarantee=self.claim))

    def synthetic(self, rows: RowsWithRecord, *, sets: int, size: int, seed: int) -> list[Rows]:
        """Fit the rows and return synthetic sets."""
        model = self.fitted(*(part for part in (rows.rest, rows.record) if part is not None), seed=seed)
        return [encoded(model, size, seed + 1 + place) for place in range(sets)]


def encoded(model: Any, size: int, seed: int) -> Rows:
    """Return rows of a model in the form that attacks read."""
    schema = model.schema
    if hasattr(model, "codes"):
        cells = np.asarray(model.codes(size, seed=seed), dtype=np.int64)
        return Rows(schema=schema, codes=cells, numbers=np.full(cells.shape, np.nan))
    widths = np.array([schema[name].bounds[1] for name in schema.names])  # bounds lie evenly around 0
    numbers = model.sample(size, seed=seed).to_numpy() / widths
    sizes = np.array([schema[name].size for name in schema.names])
    cells = np.clip(((numbers + 1) / 2 * sizes).astype(np.int64), 0, sizes - 1)
    return Rows(schema=schema, codes=cells, numbers=numbers)


def _attacked(victim: _Victim, rows: Rows, seed: int, sizes: tuple[int, int]) -> dict[str, Any]:
    found = attack(
        victim,
        rows,
        rows.schema,
        relation="replace_one",
        targets=1,
        choose="outliers",
        shadows=sizes[0],
        trials=sizes[1],
        seed=seed,
    )
    scores = [score.to_json() for score in found.overall]
    return {**_spread(scores), "learnt": sizes[0], "tested": scores[0]["fits"], "epsilon_lower": found.epsilon_lower}


def _records(rows: Rows, seed: int) -> tuple[Rows, dict[str, Rows]]:
    """Return the rows that stay, and the records that one place may hold."""
    rng = np.random.default_rng([SEED, seed])
    target = int(np.argmax(outlyingness(rows, rng)))
    other, second = rng.permutation(np.delete(np.arange(len(rows)), target))[:2]
    every = np.arange(len(rows))
    chosen = {"target": target, "other": int(other), "second": int(second)}
    records = {world: rows.take(every == place) for world, place in chosen.items()} | {"canary": canary(rows)}
    return rows.take(~np.isin(every, list(chosen.values()))), records


def linear_data(seed: int) -> tuple[dict[tuple[str, str], float], Rows, Floats]:
    """Draw a linear Gaussian model and a table of it, with bounds at four standard deviations; return its law too."""
    rng = np.random.default_rng([SEED, seed])
    weights = random_model(rng)
    names = [f"x{place}" for place in range(COLUMNS)]
    direct = np.zeros((COLUMNS, COLUMNS))
    for (cause, effect), weight in weights.items():
        direct[names.index(effect), names.index(cause)] = weight
    mixed = np.linalg.inv(np.eye(COLUMNS) - direct)
    law: Floats = mixed @ mixed.T
    limits = REACH * np.sqrt(np.diag(law))
    drawn = np.clip(rng.normal(size=(ROWS, COLUMNS)) @ mixed.T, -limits, limits)
    schema = escudo.Schema.from_dict(
        {
            name: {"type": "numeric", "lower": -float(limit), "upper": float(limit), "bins": 20}
            for name, limit in zip(names, limits, strict=True)
        }
    )
    import polars as pl

    return weights, Rows.read(pl.DataFrame(drawn, schema=names), schema), law


def _linear_weights(model: Any) -> Floats:
    """Return a model's equations as one vector, on the scale where every column's bounds are -1 and 1."""
    parts = [np.append(equation.weights, equation.intercept) for _, equation in sorted(model.conditionals.items())]
    return np.concatenate(parts)


def linear(seed: int, sizes: tuple[int, int]) -> dict[str, Any]:
    """Measure one linear Gaussian model."""
    weights, rows, law = linear_data(seed)
    names = rows.schema.names
    graph = CausalGraph.from_edges(list(weights), nodes=names)
    width = np.array([rows.schema[name].bounds[1] for name in names])
    frame = {name: rows.numbers[:, place] * width[place] for place, name in enumerate(names)}
    theory = stability(graph, frame, truth=weights, reach=REACH, seed=seed)
    rest, records = _records(rows, seed)
    spread = np.sqrt(np.diag(law))
    wanted = law / np.outer(spread, spread)
    runs: dict[str, Any] = {}
    for epsilon, (model, causal) in product(PRIVATE, MODELS.items()):
        victim = _Victim(rows.schema, graph if causal else None, "linear", epsilon)
        first = [victim.fitted(rest, records["other"], seed=key) for key in range(KEYS)]
        vectors = np.stack([_linear_weights(one) for one in first])
        errors = []
        for key, one in enumerate(first):
            made = one.sample(20_000, seed=key).to_numpy() / spread
            found = np.cov(made, rowvar=False)
            off = ~np.eye(COLUMNS, dtype=bool)
            errors.append(np.linalg.norm((found - wanted)[off]) / np.linalg.norm(wanted[off]))
        record: dict[str, Any] = {"cov_all": float(np.mean(errors))}
        record["parameters"] = vectors.shape[1]
        record["another run"] = float(np.linalg.norm(vectors[0] - vectors[1:], axis=1).mean())
        for world in KINDS:
            moved = [victim.fitted(rest, records[world], seed=key) for key in range(KEYS)]
            gap = np.stack([_linear_weights(one) for one in moved]) - vectors
            record[f"{world}, l2"] = float(np.linalg.norm(gap, axis=1).mean())
            record[f"{world}, largest"] = float(np.abs(gap).max(axis=1).mean())
        record["game"] = _attacked(victim, rows, seed, sizes)
        record["ceiling"] = _ceiling(victim.claim)
        runs[f"{model}/{epsilon:g}"] = record
    kinds = ("removed", "possible", "anything")
    unreleased = {
        model: {kind: getattr(part, kind) for kind in kinds}
        for model, part in (("causal", theory.causal), ("plain", theory.associational))
    }
    return {"runs": runs, "without privacy": unreleased}


def marginals(seed: int, sizes: tuple[int, int]) -> dict[str, Any]:
    """Measure family tables of Asia, with the graph and without."""
    network = asia()
    names = tuple(network.nodes)
    rng = np.random.default_rng([SEED, seed])

    def drawn(count: int) -> Any:
        made = network.sample(count, rng=rng)
        return np.stack([1 - made[column] for column in names], axis=1)

    codes, law = drawn(ROWS), drawn(50_000)
    schema = escudo.Schema.from_dict({name: ["0", "1"] for name in names})
    rows = Rows(schema=schema, codes=codes.astype(np.int64), numbers=np.full(codes.shape, np.nan))
    graph = CausalGraph.from_edges(list(network.graph.edges), nodes=names)
    wanted = np.cov(law, rowvar=False)
    off = ~np.eye(len(names), dtype=bool)
    runs: dict[str, Any] = {}
    for epsilon, (model, causal) in product(PRIVATE, MODELS.items()):
        victim = _Victim(schema, graph if causal else None, "marginals", epsilon)
        errors = []
        for key in range(KEYS):
            found = np.cov(encoded(victim.fitted(rows, seed=key), 20_000, key).codes, rowvar=False)
            errors.append(float(np.linalg.norm((found - wanted)[off]) / np.linalg.norm(wanted[off])))
        runs[f"{model}/{epsilon:g}"] = {
            "cov_all": float(np.mean(errors)),
            "game": _attacked(victim, rows, seed, sizes),
            "ceiling": _ceiling(victim.claim),
        }
    return {"runs": runs}


# -- the page


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Return a mean and the half width of its 95 % interval by Student's t."""
    from scipy.stats import t

    return float(np.mean(values)), float(
        t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    )


def _shown(values: Sequence[float], digits: int = 3) -> str:
    middle, half = _interval(values)
    return f"{middle:.{digits}f} ± {half:.{digits}f}"


Figure = Callable[[Mapping[str, Any]], float]


def _moved(world: str) -> Figure:
    """Return the length of the change that a record makes, over the spread of one parameter between runs.

    Noise of equal size on all P parameters makes two runs differ by a length of √(2P) times its standard deviation;
    what helps an attacker is the change along one direction, over that standard deviation.
    """
    return lambda run: run[f"{world}, l2"] / run["another run"] * math.sqrt(2 * run["parameters"])


FIGURES: dict[str, Figure] = {
    "utility": lambda run: run["cov_all"],
    "somebody else": _moved("second"),
    "outlier": _moved("target"),
    "canary": _moved("canary"),
    "largest": lambda run: run["target, largest"],
    "length": lambda run: run["target, l2"],
    "shares": lambda run: run["target, shares"],
    "auc": lambda run: run["game"]["auc"],
}
CHANGES = ("somebody else", "outlier", "canary", "largest", "length", "shares")
MEASURES = {  # of the change that the outlier makes
    "outlier": "over the spread between runs",
    "length": "length of the change of all parameters (the paper's Theorem 2)",
    "largest": "the parameter that changes most",
    "shares": "the column whose share in the released rows changes most",
}


def gathered(parts: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, list[dict[str, Any]]]]:
    """Return the runs of both models by setting and ε, seed by seed."""
    found: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for key, part in sorted(parts.items()):
        kind, name = key.split("/")[:2]
        if kind == "vae":
            model = key.split("/")[2]
            for label, run in part["runs"].items():
                epsilon = label.split("/")[0]
                run = {**run, "parameters": part["parameters"]}
                found.setdefault((f"{name}, paper's VAE", epsilon), {}).setdefault(model, []).append(run)
        else:
            title = {"linear": "linear Gaussian, `linear`", "marginals": "Asia, `marginals`"}[kind]
            for label, run in part["runs"].items():
                model, epsilon = label.split("/")
                found.setdefault((title, epsilon), {}).setdefault(model, []).append(run)
    kept = [key for key, models in found.items() if set(models) >= set(MODELS) and len(models["causal"]) >= 3]
    return {key: found[key] for key in sorted(kept, key=lambda one: (one[0], EPSILONS.index(one[1])))}


def verdict(causal: Sequence[float], plain: Sequence[float], *, ratio: bool = False) -> str:
    """Say which model has the smaller figure, by the interval of the difference over seeds, or of the log ratio."""
    both = (np.log(causal), np.log(plain)) if ratio else (causal, plain)
    middle, half = _interval(np.subtract(*both).tolist())
    if abs(middle) <= half:
        return "no difference shown"
    return "causal smaller" if middle < 0 else "causal larger"


def comparison(parts: Mapping[str, Any], figure: str, other: str = "plain") -> list[str]:
    """Return a table of one figure: with the graph, without, and the difference over seeds."""
    of = FIGURES[figure]
    lines = [
        "| setting | ε | seeds | with the graph | without | difference | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for (setting, epsilon), models in gathered(parts).items():
        if other not in models or ("another run" not in models["causal"][0] and figure in CHANGES):
            continue
        causal, plain = ([of(run) for run in models[name]] for name in ("causal", other))
        label = "∞" if epsilon == "inf" else epsilon
        digits = 4 if figure in CHANGES else 3
        cells = [_shown(values, digits) for values in (causal, plain, np.subtract(causal, plain).tolist())]
        said = verdict(causal, plain, ratio=figure in CHANGES)
        lines.append(f"| {setting} | {label} | {len(causal)} | {' | '.join(cells)} | {said} |")
    return lines


def attacks_table(parts: Mapping[str, Any]) -> list[str]:
    """Return the games with their ceilings."""
    lines = [
        "| setting | ε | model | fits: learnt from, tested, each seed | AUC, mean over attacks | AUC, best attack "
        "| accuracy | ceiling: AUC | accuracy |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for (setting, epsilon), models in gathered(parts).items():
        for model in MODELS:
            runs = models[model]
            games = [run["game"] for run in runs]
            most = ceiling_here(parts, setting, epsilon, model, runs[0])
            cells = "1 | 1" if most is None else f"{most['auc']:.2f} | {most['accuracy']:.2f}"
            label = "∞" if epsilon == "inf" else epsilon
            lines.append(
                f"| {setting} | {label} | {model} | {games[0]['learnt']}, {games[0]['tested']} "
                f"| {_shown([game['auc'] for game in games])} | {_shown([game['best_auc'] for game in games])} "
                f"| {_shown([game['accuracy'] for game in games])} | {cells} |"
            )
    return lines


def theory(parts: Mapping[str, Any]) -> list[str]:
    """Return the paper's own notion on the linear models: parameters without any noise."""
    found = [part["without privacy"] for key, part in parts.items() if key.startswith("linear/")]
    if len(found) < 3:
        return []
    lines = ["| one point | causal | associational | |", "|---|---:|---:|---|"]
    titles = {
        "possible": "added, obeys the true equations (the paper's theorem)",
        "removed": "a row of the table left out",
        "anything": "any point within the bounds (what privacy is about)",
    }
    for kind, title in titles.items():
        causal, plain = ([one[model][kind] for one in found] for model in MODELS)
        lines.append(f"| {title} | {_shown(causal, 4)} | {_shown(plain, 4)} | {verdict(causal, plain, ratio=True)} |")
    return lines


def statement(parts: Mapping[str, Any]) -> list[str]:
    """Say in plain words where the claim holds, from the intervals alone."""
    lines = []
    titles = {
        "utility": "**Utility** (smaller error is better)",
        "outlier": "**Stability**, outlier replaced (change over the spread between runs)",
        "canary": "**Stability**, made-up record",
        "somebody else": "**Stability**, one person for another",
        "auc": "**Attacks** (AUC, mean over attacks)",
    }
    for figure, title in titles.items():
        of = FIGURES[figure]
        said: dict[str, dict[str, list[str]]] = {}
        for (setting, epsilon), models in gathered(parts).items():
            if figure in CHANGES and "another run" not in models["causal"][0]:
                continue
            both = [[of(run) for run in models[name]] for name in MODELS]
            found = said.setdefault(verdict(*both, ratio=figure in CHANGES), {})
            found.setdefault(setting, []).append("∞" if epsilon == "inf" else epsilon)
        told = [
            f"{name}: " + "; ".join(f"{setting} at ε = {', '.join(levels)}" for setting, levels in said[name].items())
            for name in ("causal smaller", "causal larger", "no difference shown")
            if name in said
        ]
        if told:
            lines.append(f"* {title}. " + ". ".join(text[0].upper() + text[1:] for text in told) + ".")
    lines += sizes_matter(parts)
    games = [
        (run["game"]["best_auc"], ceiling["auc"])
        for (setting, epsilon), models in gathered(parts).items()
        for model, runs in models.items()
        if model in MODELS
        for run in runs
        if (ceiling := ceiling_here(parts, setting, epsilon, model, run)) is not None
    ]
    above = sum(got > most for got, most in games)
    bounds = [
        (run["game"]["epsilon_lower"], float(epsilon))
        for (_, epsilon), models in gathered(parts).items()
        for runs in models.values()
        for run in runs
        if "epsilon_lower" in run["game"]
    ]
    broken = sum(bound > epsilon for bound, epsilon in bounds)
    lines.append(
        f"* In {above} of {len(games)} games against private models the best of several attacks came out above the "
        "ceiling (an AUC from 100 fits in each world has a standard error of 0.04, and the best was picked); the "
        f"formal lower bound on ε was above the stated ε in {broken} of the {len(bounds)} that have one. "
        "The ceiling is a matter of the noise alone: no graph changes it, and nothing here makes a stated ε smaller."
    )
    lines.append("* Verdicts are by 95 % intervals, each for itself: one in twenty is due to chance.")
    return lines


def sizes(parts: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return how many parameters each table's VAEs have."""
    found: dict[str, dict[str, int]] = {}
    for key, part in sorted(parts.items()):
        if "parameters" in part:
            found.setdefault(key.split("/")[1], {})[key.split("/")[2]] = part["parameters"]
    return found


def sizes_matter(parts: Mapping[str, Any]) -> list[str]:
    """Say how far the VAEs differ in size, and what is left of the differences in stability at equal size."""
    known = {table: sized for table, sized in sizes(parts).items() if set(sized) >= set(MODELS)}
    if not known:
        return []
    more = [f"{100 * (sized['causal'] / sized['plain'] - 1):.0f} % ({table})" for table, sized in known.items()]
    lines = [
        f"* **These VAEs are not of one size**: the causal ones have {' and '.join(more)} more parameters than the "
        "plain ones, so differences in stability between them are of graph and size together."
    ]
    for (setting, epsilon), models in gathered(parts).items():
        if "wide" in models:
            told = []
            for figure, title in MEASURES.items():
                causal, wide = ([FIGURES[figure](run) for run in models[name]] for name in ("causal", "wide"))
                ratio = float(np.exp(np.mean(np.log(causal) - np.log(wide))))
                told.append(f"{title} {ratio:.2f} ({verdict(causal, wide, ratio=True)})")
            level = "∞" if epsilon == "inf" else epsilon
            lines.append(
                f"* **At equal size**, {setting}, ε = {level}, outlier replaced; the causal change as a multiple of "
                f"the other: {'; '.join(told)}."
            )
    without = [table for table, sized in known.items() if "wide" not in sized]
    if without:
        lines.append(f"* Not compared at equal size: {', '.join(without)}.")
    return lines


def ceiling_here(
    parts: Mapping[str, Any], setting: str, epsilon: str, model: str, run: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return the ceiling of a game; None where nothing is promised."""
    if epsilon == "inf":
        return None
    own: Mapping[str, Any] | None = run.get("ceiling")
    return own if own is not None else parts[f"vae/{setting.split(',')[0]}/{model}"]["ceilings"][epsilon]


def _at_equal_size(parts: Mapping[str, Any]) -> list[str]:
    """Return the tables of VAEs with as many parameters, without the graph, where there are any."""
    if not any("wide" in sized for sized in sizes(parts).values()):
        return []
    lines = ["### At equal size: a VAE without the graph whose layers are widened until it has as many parameters", ""]
    titles = {
        **{
            figure: f"The person furthest from their neighbours, for somebody else; {how}"
            for figure, how in MEASURES.items()
        },
        "somebody else": "One person of the population for another, over the spread between runs",
        "canary": "A record made up to stand out, over the spread between runs",
        "utility": "Utility: error of all covariances",
    }
    for figure, title in titles.items():
        lines += [f"{title}:", "", *comparison(parts, figure, "wide"), ""]
    return lines


def page(parts: Mapping[str, Any]) -> str:
    """Return all results as Markdown."""
    devices = sorted({part["device"] for part in parts.values() if "device" in part})
    counted = [f"{table} {model} {count:,}" for table, sized in sizes(parts).items() for model, count in sized.items()]
    return "\n".join(
        [
            *header("Does a causal model amplify privacy?", "amplification", parts),
            f"Tables of {ROWS:,} rows, drawn anew for each seed; add/remove, δ = {DELTA:g}; means with 95 % intervals "
            "(Student's t) over seeds, and the difference of both models seed by seed. VAEs as in the paper (samples "
            f"of {BATCH}, {STEPS:,} steps, three layers), {COPIES} copies for each game and 16 fours for stability, "
            f"trained on {', '.join(devices) or 'nothing yet'}; parameters: {', '.join(counted) or 'none'}. ε = ∞ is "
            "without clipping and noise.",
            "",
            "## Where the claim holds",
            "",
            *statement(parts),
            "",
            "## Utility: error of all covariances, relative to their size",
            "",
            *comparison(parts, "utility"),
            "",
            "## Stability of the released parameters",
            "",
            "The same start, samples and noise with one record replaced: the length of the change of all parameters, "
            "in standard deviations of a single parameter when noise and samples are drawn anew. That is what somebody "
            "who knows the direction of the change has to go by. (Over the length of the whole change between runs it "
            "would be smaller the more parameters a model has, which protects nobody.) Verdicts on changes are by "
            "their ratios.",
            "",
            "### The person furthest from their neighbours, for somebody else",
            "",
            *comparison(parts, "outlier"),
            "",
            "### One person of the population for another",
            "",
            *comparison(parts, "somebody else"),
            "",
            "### A record made up to stand out, for somebody",
            "",
            *comparison(parts, "canary"),
            "",
            "### The largest change of a parameter (outlier)",
            "",
            *comparison(parts, "largest"),
            "",
            *_at_equal_size(parts),
            "### Without any noise: linear models, least squares (`escudo.synthesis.stability`)",
            "",
            *theory(parts),
            "",
            "## Attacks",
            "",
            "The corrected game: one synthetic set from each fit, fits that teach apart from fits that test; the "
            "target is the person furthest from their neighbours, and somebody else stands in their place otherwise. "
            "The best of several attacks is flattered by having been picked: its chance level is above one half. "
            "Ceilings are for replacing a record, under noise that is calibrated for adding or removing one.",
            "",
            *attacks_table(parts),
            "",
            *comparison(parts, "auc"),
            "",
        ]
    )


def main() -> None:
    """Run what is missing, and write the results."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, default=DATA, help="folder with neuropathic_pain/")
    options.add_argument("--prepare", type=Path, help="only write what an accelerator needs into this file")
    options.add_argument("--trained", type=Path, help="folder with what _twins.py wrote")
    options.add_argument("--copies", type=int, default=COPIES, help="VAEs of each game, where they are trained here")
    options.add_argument("--only", nargs="*", default=[], help="words that a part's name must hold")
    options.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    options.add_argument("--again", action="store_true", help="forget the parts that are there")
    options.add_argument("--quick", action="store_true", help="a smoke run that writes nothing")
    options.add_argument("--page", action="store_true", help="only write the page anew")
    chosen = options.parse_args()
    if chosen.prepare is not None:
        prepare(chosen.prepare, chosen.data)
        return
    store = Store("amplification", again=chosen.again, kept=not chosen.quick)
    jobs: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        (f"{kind}/{seed}", lambda make=make, seed=seed: make(seed, (6, 8) if chosen.quick else SIZES))
        for kind, make in (("linear", linear), ("marginals", marginals))
        for seed in (chosen.seeds[:2] if chosen.quick else chosen.seeds)
    ]
    if not chosen.quick:
        folder = chosen.trained or Path(tempfile.mkdtemp(prefix="twins-"))
        jobs += [
            (f"vae/{table}/{model}", lambda table=table, model=model: vaes(folder, table, model))
            for table, model in product(TABLES, VAES)
            if chosen.trained is None or (chosen.trained / f"{table}-{model}.npz").exists()
        ]
    jobs = [
        (key, job)
        for key, job in jobs
        if all(word in key for word in chosen.only) and key not in store.parts and not chosen.page
    ]
    if any(key.startswith("vae/") for key, _ in jobs) and chosen.trained is None:
        wanted = sorted({key.split("/")[1] for key, _ in jobs if key.startswith("vae/")})
        prepare(folder / "given.npz", chosen.data)
        train(folder / "given.npz", folder, copies=chosen.copies, tables=wanted, seeds=SEEDS)
    with tracking("Measuring", total=len(jobs)) as advance:
        for key, job in jobs:
            began = time.process_time()
            store.put(key, job(), seconds=time.process_time() - began)
            print(f"{key}: {time.process_time() - began:.0f} s of processor time", flush=True)
            advance(1)
    text = page(store.parts)
    if chosen.quick:
        print(text)
        return
    (RESULTS / "amplification.md").write_text(text, encoding="utf-8")
    print(f"Wrote {RESULTS / 'amplification.md'}")


if __name__ == "__main__":
    main()
