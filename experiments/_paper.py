"""What the experiments on *Causally Constrained Data Synthesis* share: its tables, its VAEs, and where results go.

**Tables.** Asia ("Lung Cancer"), from its published network. Pain1000 and Pain5000: the simulator's rows come without
its numbers, so these are refitted (``benchmarks/wide.py``). Synthetic: the paper does not give its equations, so they
are made up here: 22 columns of two levels, up to three earlier parents each, logistic laws. Eedi: the paper's 2,950
students and 948 questions are not to be had; the 542 students at hand answered 6 % of 1,774 questions, and none all of
the 8 commonest. So columns are the 40 subjects that most of them met, 1 where at least two thirds of a student's
answers were right (0 also where there were none), and what is known of the student: gender, birth, premium pupil.

**VAEs.** The paper's training: samples of 100, 100 epochs (Synthetic: 50), Adam at 0.001, embeddings of 10, three
layers, everything started at random (Eedi: samples of 200, 1,000 epochs). Pain and Eedi have the condensed graph (the
columns with children, then the others; the paper's model of Eedi has no arrow from z to the first group, this one
has); Asia and Synthetic have a small net for each column with parents, beside z. Private ones clip gradients at 1 and
add the noise that escudo's accountant finds for the paper's ε at δ = 1e-5, add/remove (the paper searched norm and
noise on a grid, on the data, and does not print them; for Asia it gives no ε, so that of Pain1000 is taken). The
others neither clip nor add noise: they promise nothing. One at a time, ``generator="vae"`` trains the same with
``architecture`` and ``epsilon=None, no_privacy=True``; here they are trained by the hundred. The network of Eedi
exactly as printed, without the arrow from z to the first group, is ``architecture="eedi"`` (``printed_vaes.py``).
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import escudo
from escudo.attacks import Attack, attack
from escudo.attacks._victims import RowsWithRecord
from escudo.causal import CausalGraph, asia
from escudo.privacy import Budget, Guarantee, RepeatedEvent, SampledGaussianEvent, calibrate, guarantee_of
from escudo.utility import Rows

ROOT = Path(__file__).parents[1]
RESULTS = Path(os.environ.get("ESCUDO_RESULTS", Path(__file__).parent / "results"))  # elsewhere where parts are merged
sys.path.insert(0, str(ROOT / "benchmarks"))
from wide import FILES, Truth, setting  # noqa: E402  # a script of the project, not a package

__all__ = [
    "DATA",
    "DELTA",
    "FOLDERS",
    "MODELS",
    "PaperVae",
    "Store",
    "Table",
    "header",
    "outlier_game",
    "table_of",
    "vae_of",
]

Codes = NDArray[np.int64]

DATA = ROOT.parent / "shared" / "data"
SEED = 20_261_115
DELTA = 1e-5
MODELS = {"causal, DP": (True, True), "causal": (True, False), "plain, DP": (False, True), "plain": (False, False)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """A table of two-level columns, the graph it was drawn from, and how the paper trained on it."""

    name: str
    codes: Codes
    fresh: Codes
    tested: Codes
    edges: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    epsilon: float
    epochs: int
    condensed: bool
    batch: int = 100
    data: str = "simulated here"

    @cached_property
    def schema(self) -> escudo.Schema:
        """The public description."""
        return escudo.Schema.from_dict({name: ["0", "1"] for name in self.names})

    @cached_property
    def graph(self) -> CausalGraph:
        """The true graph; for Eedi, where none is known, that facts about students come before their answers."""
        if self.name == "Eedi":
            causes = {cause for cause, _ in self.edges}
            groups = {"facts": sorted(causes), "answers": [name for name in self.names if name not in causes]}
            return CausalGraph.from_edges([("facts", "answers")], groups=groups)
        return CausalGraph.from_edges(self.edges, nodes=self.names)

    def rows(self, codes: Codes) -> Rows:
        """Return cells in the form that escudo's evaluations read."""
        return Rows(schema=self.schema, codes=codes.astype(np.int64), numbers=np.full(codes.shape, np.nan))

    def parents(self, edges: Sequence[tuple[str, str]]) -> dict[int, tuple[int, ...]]:
        """Return each column's parents, as numbers."""
        place = {name: number for number, name in enumerate(self.names)}
        return {
            place[child]: tuple(sorted(place[cause] for cause, effect in edges if effect == child))
            for child in self.names
        }


FOLDERS = {"Pain1000": "neuropathic_pain", "Pain5000": "neuropathic_pain", "Eedi": "eedi"}  # what tables are read from


def table_of(name: str, data: Path = DATA, *, rows: int = 1000, tested: int = 5000) -> Table:
    """Return one of the paper's tables: ``Asia``, ``Synthetic``, ``Pain1000``, ``Pain5000`` or ``Eedi``."""
    rng = np.random.default_rng(SEED)
    if name == "Eedi":
        return _eedi(data / FOLDERS[name], rng)
    if name == "Asia":
        network = asia()
        names = tuple(network.nodes)

        def draw(count: int) -> Codes:
            drawn = network.sample(count, rng=rng)
            return np.stack([1 - drawn[column] for column in names], axis=1)  # 1 for yes

        edges, epsilon, epochs, said = tuple(network.graph.edges), 2.36, 100, "simulated here"
    elif name == "Synthetic":
        names = tuple(f"v{place:02}" for place in range(22))
        parents = [rng.permutation(place)[: min(place, int(rng.integers(0, 4)))] for place in range(22)]
        weights = [rng.normal(0, 2, len(several)) for several in parents]
        levels = rng.normal(-0.5, 1, 22)

        def draw(count: int) -> Codes:
            made = np.zeros((count, 22), np.int64)
            for place, (several, weight) in enumerate(zip(parents, weights, strict=True)):
                logit = levels[place] + (made[:, several] - 0.5) @ weight
                made[:, place] = rng.random(count) < 1 / (1 + np.exp(-logit))
            return made

        edges = tuple((names[cause], names[place]) for place, several in enumerate(parents) for cause in several)
        epsilon, epochs, said = 3.9, 50, "simulated here"
    else:
        rows = {"Pain1000": 1000, "Pain5000": 5000}[name]
        graph, raw = (data / "neuropathic_pain" / file for file in FILES)
        arrows = np.load(graph, allow_pickle=False).astype(bool)
        truth = Truth.refitted(np.loadtxt(raw, delimiter=",", skiprows=1, dtype=np.uint8), arrows)
        names = tuple(f"x{place:03}" for place in range(len(arrows)))

        def draw(count: int) -> Codes:
            return truth.drawn(count, rng).astype(np.int64)

        edges = tuple((names[cause], names[effect]) for cause, effect in np.argwhere(arrows))
        epsilon, epochs = {"Pain1000": 2.36, "Pain5000": 5.62}[name], 100
        digest = hashlib.sha256(graph.read_bytes() + raw.read_bytes()).hexdigest()[:12]
        said = f"refitted from neuropathic_pain, sha256 {digest}…"
    return Table(
        name=name,
        codes=draw(rows),
        fresh=draw(rows),
        tested=draw(tested),
        edges=edges,
        names=names,
        epsilon=epsilon,
        epochs=epochs,
        condensed=name.startswith("Pain"),
        data=said,
    )


def _eedi(folder: Path, rng: np.random.Generator) -> Table:
    """Return students by subjects: 400 to learn from, the others to test on, and no fresh ones."""
    files = [folder / f"{part}_data.csv" for part in ("train", "valid", "test")]
    question, student, right = np.concatenate([np.loadtxt(file, delimiter=",", skiprows=1) for file in files]).T
    subjects = {}
    with (folder / "question_meta.csv").open(encoding="utf-8") as lines:
        for one in csv.DictReader(lines):
            subjects[int(one["question_id"])] = json.loads(one["subject_id"])
    students = int(student.max()) + 1
    asked, known = (np.zeros((students, 1 + max(max(several) for several in subjects.values()))) for _ in range(2))
    for place, number in enumerate(question.astype(int)):
        asked[int(student[place]), subjects[number]] += 1
        known[int(student[place]), subjects[number]] += right[place]
    chosen = np.argsort(-(asked > 0).sum(axis=0), kind="stable")[:40]
    answers = 3 * known[:, chosen] >= 2 * np.maximum(asked[:, chosen], 1)
    facts = np.zeros((students, 4), bool)
    with (folder / "student_meta.csv").open(encoding="utf-8") as lines:
        for one in csv.DictReader(lines):
            facts[int(one["user_id"])] = (
                one["gender"] == "1",
                one["gender"] == "2",
                "" < one["data_of_birth"] < "2005",
                one["premium_pupil"].startswith("1"),
            )
    names = ("girl", "boy", "born_before_2005", "premium", *(f"subject{number}" for number in chosen))
    codes = np.concatenate([facts, answers], axis=1).astype(np.int64)[rng.permutation(students)]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    return Table(
        name="Eedi",
        codes=codes[:400],
        fresh=codes[:0],
        tested=codes[400:],
        edges=tuple((cause, effect) for cause in names[:4] for effect in names[4:]),
        names=names,
        epsilon=12.42,
        epochs=1000,
        condensed=True,
        batch=200,
        data=f"(542 students, 40 subjects) from eedi, sha256 {digest}…",
    )


class PaperVae:
    """The paper's VAE as something to attack: every fit is trained as the paper says.

    Args:
        table: What it is for; only names, epochs and the number of rows are read.
        causal: Whether it follows the graph.
        epsilon: What a fit promises; None for no clipping and no noise.
        edges: Another graph than the table's.
        one_start: Whether all fits start at the same parameters, which makes attacks stronger; each has its own
            otherwise, as in the paper.
    """

    def __init__(
        self,
        table: Table,
        *,
        causal: bool,
        epsilon: float | None,
        edges: Sequence[tuple[str, str]] | None = None,
        one_start: bool = False,
    ):
        from escudo.synthesis.neural._network import Columns, ColumnSpec, Network, Unit

        width, rows = len(table.names), len(table.codes)
        parents = table.parents(table.edges if edges is None else edges)
        if not causal:
            units = (Unit(tuple(range(width)), ()),)
        elif table.condensed:
            first = tuple(sorted({cause for several in parents.values() for cause in several}))
            units = (Unit(first, ()), Unit(tuple(place for place in range(width) if place not in set(first)), first))
        else:
            units = tuple(Unit((place,), several) for place, several in parents.items())
        self.network = Network(
            columns=Columns((ColumnSpec(2),) * width),
            units=units,
            direct=False,
            hidden=(() if not causal else (128, 64) if table.condensed else (16, 16)),
            latent=10,
            encoder=(128, 64),
            decoder=(64, 128),
        )
        self.schema, self.batch, self.one_start = table.schema, table.batch, one_start
        self.steps, self.chance = table.epochs * rows // table.batch, table.batch / rows
        self.noise = 0.0 if epsilon is None else calibrate(self._events, Budget(epsilon, DELTA))
        self.claim: Guarantee | None = None
        if epsilon is not None:
            self.claim = guarantee_of(self._events(self.noise), delta=DELTA)
        self.fits, self.seconds = 0, 0.0
        self._kept: dict[tuple[str, int, int, int], list[NDArray[np.uint8]]] = {}

    def _events(self, noise: float) -> RepeatedEvent:
        step = SampledGaussianEvent(noise_multiplier=noise, sampling_probability=self.chance, relation="add_remove")
        return RepeatedEvent(event=step, count=self.steps, relation="add_remove")

    @property
    def together(self) -> bool:
        """Whether fits are quicker all at once."""
        from escudo.synthesis.neural import on_accelerator

        return on_accelerator()

    def trainings(self, worlds: Iterable[tuple[RowsWithRecord, int]]) -> Iterator[Any]:
        """Return the training of each world, for ``escudo.synthesis.neural``."""
        from escudo.mechanisms.dpsgd._core import Knobs
        from escudo.synthesis.neural._many import Copy

        clip = 1.0 if self.noise else np.inf
        knobs = Knobs(*map(np.float32, (clip, self.noise, self.batch, 1e-3, 1e6, 0.0, 0.0)))
        rest, small, start = None, np.zeros((0, 0), np.uint8), None
        for rows, seed in worlds:
            rng = np.random.default_rng(0 if self.one_start else seed)
            if start is None or not self.one_start:
                start = np.asarray(self.network.layout.flatten(self.network.start(rng)), np.float32)
            if rows.rest is not rest:
                rest, small = rows.rest, rows.rest.codes.astype(np.uint8)
            record = [] if rows.record is None else [rows.record.codes.astype(np.uint8)]
            yield Copy(start=start, rows=np.concatenate([small, *record]), knobs=knobs, seed=seed)

    def fitted(self, worlds: Sequence[tuple[RowsWithRecord, int]], spread: Any = map) -> Iterator[FittedVae]:
        """Train on all rows, side by side where there is an accelerator."""
        from escudo.mechanisms.dpsgd import Training
        from escudo.synthesis.neural._many import train_many

        usual = Training(steps=1, sampling_probability=1.0, noise_multiplier=1.0, clip_norm=1.0).recipe
        made = train_many(
            self.network,
            replace(usual, averaged=False),
            self.trainings(worlds),
            count=len(worlds),
            steps=self.steps,
            probability=self.chance,
        )
        bare = replace(self.network)  # without what it has computed: that would travel to other processes
        for _, seed in worlds:
            began = time.process_time()
            flat = next(made)
            self.fits, self.seconds = self.fits + 1, self.seconds + time.process_time() - began
            tree = self.network.layout.unflatten(flat)
            yield FittedVae(network=bare, parameters=tree, schema=self.schema, seed=seed)

    def synthetic(self, rows: RowsWithRecord, *, sets: int, size: int, seed: int) -> list[Rows]:
        """Fit the rows and return synthetic sets; the same fit asked for again is not trained again."""
        codes = rows.rest.codes if rows.record is None else np.concatenate([rows.rest.codes, rows.record.codes])
        key = (hashlib.sha256(codes.tobytes()).hexdigest(), seed, sets, size)
        if key not in self._kept:
            self._kept[key] = next(self.fitted([(rows, seed)])).drawn(sets, size)
        return [_rows(self.schema, one) for one in self._kept[key]]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FittedVae:
    """A trained VAE, to draw from."""

    network: Any
    parameters: Mapping[str, Mapping[str, Any]]
    schema: escudo.Schema
    seed: int

    def synthetic(self, *, sets: int, size: int) -> list[Rows]:
        """Return synthetic sets."""
        return [_rows(self.schema, one) for one in self.drawn(sets, size)]

    def drawn(self, sets: int, size: int) -> list[NDArray[np.uint8]]:
        """Return the cells of synthetic sets."""
        return [self._set(size, np.random.default_rng(self.seed + 1 + place)) for place in range(sets)]

    def _set(self, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
        from escudo.synthesis.neural._model import _tiers

        network = self.network
        outputs = network.from_latent(self.parameters, rng.normal(size=(size, 10)).astype(np.float32))
        outputs = outputs + self.parameters["base"]["b"]
        made = np.zeros((size, len(network.columns.specs)), np.uint8)
        for tier in _tiers(network):
            wanted = np.array(tier)
            logit = outputs[:, wanted] + network.from_parents(self.parameters, made.astype(np.float32), wanted)
            made[:, wanted] = rng.random(logit.shape) < 1 / (1 + np.exp(-np.clip(logit, -60, 60)))
        return made


def _rows(schema: escudo.Schema, codes: NDArray[np.uint8]) -> Rows:
    return Rows(schema=schema, codes=codes.astype(np.int64), numbers=np.full(codes.shape, np.nan))


def vae_of(table: Table, model: str, **options: Any) -> PaperVae:
    """Return one of the four ``MODELS`` for a table, private ones with the paper's ε."""
    causal, private = MODELS[model]
    return PaperVae(table, causal=causal, epsilon=table.epsilon if private else None, **options)


def outlier_game(victim: Any, table: Table, *, shadows: int, trials: int, jobs: int | None = None) -> Attack:
    """Play the corrected game on the person furthest from their neighbours, who is there or not, all others fixed."""
    return attack(
        victim,
        table.rows(table.codes),
        table.schema,
        relation="add_remove",
        targets=1,
        choose="outliers",
        shadows=shadows,
        trials=trials,
        seed=SEED,
        jobs=jobs,
    )


class Store:
    """Results on disk, part by part: a part that is there is not measured again."""

    def __init__(self, name: str, *, again: bool = False, kept: bool = True):
        self.path, self._kept = RESULTS / f"{name}.json", kept
        self.parts: dict[str, Any] = {}
        if kept and again:
            self.path.unlink(missing_ok=True)
        if kept and self.path.exists():
            self.parts = json.loads(self.path.read_text(encoding="utf-8"))["parts"]

    def put(self, key: str, value: Any, *, seconds: float) -> None:
        """Keep a part, with when and where it was made, and the processor time it took."""
        facts = setting()
        if "ESCUDO_COMMIT" in os.environ:  # where the sources are a copy without their history
            facts["commit"] = os.environ["ESCUDO_COMMIT"]
        made = {name: facts[name] for name in ("date", "commit", "processor", "cores", "load_at_end", "python")}
        made["accelerator"] = _accelerator()
        if self._kept and self.path.exists():  # another process may have added parts
            self.parts = {**json.loads(self.path.read_text(encoding="utf-8"))["parts"], **self.parts}
        self.parts[key] = {**value, "made": {**made, "seed": SEED, "cpu_seconds": round(seconds, 1)}}
        if self._kept:
            RESULTS.mkdir(exist_ok=True)
            text = json.dumps({"parts": self.parts}, indent=1) + "\n"
            part = self.path.with_suffix(f".{os.getpid()}.tmp")
            part.write_text(text, encoding="utf-8")
            part.replace(self.path)


def _accelerator() -> str | None:
    import jax

    return None if jax.devices()[0].platform == "cpu" else str(jax.devices()[0].device_kind)


def header(title: str, script: str, parts: Mapping[str, Any]) -> list[str]:
    """Return the first lines of a page of results."""
    made = [part["made"] for part in parts.values()]
    if not made:
        return [f"# {title}", "", "Nothing measured yet.", ""]
    commits = sorted({one["commit"] for one in made})
    machines = dict.fromkeys(
        f"{one['processor']}, {one['cores']} cores" + (f" and {name}" if (name := one.get("accelerator")) else "")
        for one in made
    )
    return [
        f"# {title}",
        "",
        f"{max(one['date'] for one in made)}, commit {', '.join(commits)}, seed {SEED}. Machines, all of them shared: "
        f"{'; '.join(machines)}. {sum(one['cpu_seconds'] for one in made) / 60:.0f} minutes of processor time in all. "
        f"Made by `python experiments/{script}.py`.",
        "",
    ]
