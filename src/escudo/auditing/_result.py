"""What an audit found: a lower confidence bound on ε, the verdict on the claim, and the evidence for both.

The evidence is shown so that people can read it: the witness in words, in which the numbers of a dict, a table or a
dataclass have their names, and the outputs of both datasets side by side.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from escudo._card import card, plain
from escudo._plot import Drawn, rising
from escudo._validate import positive, probability, whole
from escudo.auditing._bounds import Event, Power
from escudo.auditing._cells import NumberCells, count, keys_of, show_output, tally
from escudo.auditing._experiment import Experiment
from escudo.auditing._outputs import Sample, content_of
from escudo.auditing._views import CornerCells
from escudo.effects import Effect, Witness, show_epsilon
from escudo.privacy import Guarantee

Stopped = Literal["violated", "runs", "time", "failed", "repeats"]

_QUOTED = re.compile(r"b?(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
_END = re.compile(r", |[\]})]")
_KEY = re.compile(r"(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^:{}\[\]]+): ")
_ARRAY = re.compile(r"array\(([0-9, ]*)\)")
_CALL = re.compile(r"[A-Za-z_]\w*\(")
_CELLS = 60
_CATEGORIES = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Audit(Drawn):
    """The result of a randomised experiment on a mechanism.

    ``plot`` draws how the lower bound on ε rose with the runs, beside the claim where that is an ε.

    Attributes:
        epsilon_lower: The mechanism's ε is at least this, at the stated confidence, whenever the audit was stopped;
            0 if nothing was found. Stated at ``delta``.
        violated: Whether the claim is rejected at the stated confidence.
        runs: How many runs of the mechanism were counted.
        claim: What the mechanism promises.
        confidence: Of every statement, all events, bets, directions and input pairs together.
        delta: The δ at which ``epsilon_lower`` holds: the claim's own, or 0 for claims in another notion.
        answers: How many of the runs gave an answer, and no error; None if that is not known.
        witness: Inputs and event with the largest difference, with their frequencies.
        lower: For claims in ρ or μ: the smallest value not rejected; None otherwise.
        clopper_pearson: The familiar second answer: an event is chosen after a fifth of the runs (up to half of few),
            and the later ones bound it, by Clopper-Pearson. Valid for a number of runs fixed beforehand; 0 if the
            audit stopped before.
        curve: If the audit ran on: lower bounds (δ, ε), all right together at the stated confidence.
        plausible: If the audit ran on: the largest ε that is plausible for the event of ``clopper_pearson``. No
            guarantee: other events, or inputs, may show more. None if nothing was counted.
        history: Wealth and bound over time.
        outputs: What came out under both inputs of the witness pair.
        power: What the audit would have seen.
        pairs: Labels of the input pairs, in order.
        stopped: Why it ended: the claim is refuted, runs or time were used up, every run failed, or answers repeat
            and there is nothing new to ask.
        seconds: Wall-clock time.
        seed: Repeats the audit.
        notes: What else a reader should know, one sentence each.
    """

    epsilon_lower: float
    violated: bool
    runs: int
    claim: Guarantee
    confidence: float
    delta: float = 0.0
    answers: int | None = None
    witness: Witness | None = None
    lower: float | None = None
    clopper_pearson: float = 0.0
    curve: tuple[tuple[float, float], ...] = ()
    plausible: float | None = None
    history: History
    outputs: Outputs | None = None
    power: Power | None = None
    pairs: tuple[str, ...] = ()
    stopped: Stopped = "runs"
    seconds: float = 0.0
    seed: int | None = None
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        positive("epsilon_lower", self.epsilon_lower, allow_zero=True)
        probability("confidence", self.confidence, allow_zero=False)
        probability("delta", self.delta)
        whole("runs", self.runs)

    @property
    def nothing_audited(self) -> bool:
        """Whether no run gave an answer, or none that could be bet on, so that finding no violation says nothing."""
        return not self.violated and (self.runs == 0 or self.answers == 0 or self.stopped == "repeats")

    @property
    def effect(self) -> Effect:
        """The measured effect of one record on the output, comparable with exact and proved ones."""
        return Effect(
            epsilon=self.epsilon_lower,
            witness=self.witness,
            known="measured",
            of=("one record",),
            on=("the output",),
            population="the input pairs tried",
            delta=self.delta,
            confidence=self.confidence,
        )

    @property
    def claimed(self) -> str:
        """The claim in short: ``ε ≤ 1.00``, ``(1.00, 1e-06)-DP``, ``ρ ≤ 0.1``, ``μ ≤ 1``."""
        claim = self.claim
        if claim.epsilon is not None:
            return f"ε ≤ {show_epsilon(claim.epsilon)}" + (f" at δ = {claim.delta:g}" if claim.delta else "")
        if claim.rho is not None:
            return f"ρ ≤ {claim.rho:.4g} (zCDP)"
        return f"μ ≤ {claim.mu:.4g} (GDP)" if claim.mu is not None else "the claimed privacy curve"

    @property
    def verdict(self) -> str:
        """The finding in honest words: never "private", only what was found, and what would have been."""
        sure = f"{100 * self.confidence:.4g} % confidence"
        at = f" at δ = {self.delta:g}" if self.delta else ""
        bound = f"ε ≥ {show_epsilon(self.epsilon_lower)}{at} with {sure}"
        if self.lower is not None:
            bound += f"; {'ρ' if self.claim.rho is not None else 'μ'} ≥ {self.lower:.3g}"
        if self.violated:
            early = "stopped early after" if self.stopped == "violated" else "after"
            return f"VIOLATED: the claim {self.claimed} is rejected; {bound} ({early} {self.runs:,} runs)."
        if self.nothing_audited:
            why = f"all {self.runs:,} runs ended with an error" if self.runs else "no run counted"
            if self.stopped == "repeats":
                why = "every question always has the same answer, and there are too few new ones to ask"
            return f"Nothing was audited: {why}, so that nothing is known about the claim {self.claimed}."
        text = f"No violation found; {bound} ({self.runs:,} runs)"
        if self.power is not None:
            text += (
                f"; an ε of {show_epsilon(self.power.epsilon)} would have been seen with probability "
                f"{self.power.probability:.2f}, on an event of probability {self.power.mass:.2g}"
            )
        return text + "."

    def __str__(self) -> str:
        return self.verdict

    def _draw(self, axes: Any) -> Any:
        sure = f"at least this, {100 * self.confidence:.4g} % confidence"
        return rising(
            axes,
            self.history.runs.tolist(),
            self.history.epsilon_lower.tolist(),
            claim=self.claim.epsilon,
            names=(f"Audit of {self.claimed}", "runs of the mechanism", "ε", sure, f"claimed: {self.claimed}"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``json.dumps``."""
        return {
            **plain(self, "epsilon_lower", "delta", "violated", "nothing_audited", "runs", "answers", "claim"),
            **plain(self, "confidence", "lower"),
            **plain(self, "clopper_pearson", "curve", "plausible", "effect", "history", "outputs", "power", "pairs"),
            **plain(self, "stopped", "seconds", "seed", "notes", "verdict"),
        }

    def _repr_html_(self) -> str:
        return card(f"Audit of {self.claimed}", self.verdict, alarm=self.violated)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """How the audit went: after so many runs, the wealth against the claim and the bound.

    Attributes:
        runs: Number of runs, increasing, at most some hundred points.
        log_wealth: Natural log of the wealth bet against the claim; it crosses log(1/α) where the claim is rejected.
        epsilon_lower: The lower bound on ε at that time; never falls.
    """

    runs: NDArray[np.int64]
    log_wealth: NDArray[np.float64]
    epsilon_lower: NDArray[np.float64]

    def to_json(self) -> dict[str, list[float]]:
        """Return plain lists, for ``json.dumps``."""
        return {
            "runs": self.runs.tolist(),
            "log_wealth": [round(float(w), 6) if math.isfinite(w) else -1e308 for w in self.log_wealth],
            "epsilon_lower": [round(float(e), 6) for e in self.epsilon_lower],
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outputs:
    """How often the witness pair's two datasets led to each kind of output.

    Attributes:
        kind: ``"number"`` (``edges`` bound the cells), ``"category"`` (an output, or a kind of them), or ``"score"``:
            the number made of a larger output that tells most, with edges.
        labels: One text per cell.
        edges: Cell boundaries, one more than cells, for numbers and scores.
        first: Runs per cell under the witness's first dataset, which makes its event likelier.
        second: Runs per cell under its second dataset.
    """

    kind: Literal["number", "category", "score"]
    labels: tuple[str, ...]
    edges: NDArray[np.float64] | None
    first: NDArray[np.int64]
    second: NDArray[np.int64]

    def to_json(self) -> dict[str, Any]:
        """Return plain lists, for ``json.dumps``."""
        return plain(self)


# ---- what an audit shows


def show_dataset(dataset: Any) -> str:
    """Return a dataset in few words."""
    shape = getattr(dataset, "shape", None)
    if isinstance(dataset, np.ndarray) and dataset.size <= 12:
        return str(dataset.tolist())
    if hasattr(dataset, "columns") and hasattr(dataset, "rows"):  # a polars frame, of few rows
        rows = dataset.rows() if len(dataset) <= 3 else dataset.rows()[:3]
        return f"{len(dataset)} rows: {', '.join(map(str, rows))}" + ("" if len(dataset) <= 3 else ", ...")
    text = str(dataset) if shape is None else f"{type(dataset).__name__} of shape {shape}"
    return text if len(text) <= 120 else text[:117] + "..."


def show_witness(event: Event, experiment: Experiment, structures: Sequence[str]) -> Witness:
    """Return the event, under which input it is likelier, and how often it happened."""
    first, second = (show_dataset(d) for d in experiment.pair)
    if first == second:  # two datasets that look alike in few words
        first, second = f"{experiment.label}, first", f"{experiment.label}, second"
    likely, other = (second, first) if event.second else (first, second)
    words = with_names(event.use.partition.words(event.cells, structures), structures)
    return Witness(y={"event": words}, x1={"data": likely}, x2={"data": other}, probabilities=event.probabilities)


def show_outputs(experiment: Experiment, structures: Sequence[str], *, likelier_second: bool) -> Outputs | None:
    """Return how often each kind of output came from each dataset of a pair, from the outputs kept.

    Args:
        experiment: The pair's runs.
        structures: What outputs looked like.
        likelier_second: Whether the witness names the pair's second dataset first, so that both agree.
    """
    if not experiment.kept_rows:
        return None
    sample = experiment.sample()
    outputs, labels = sample.outputs, ~sample.labels if likelier_second else sample.labels
    numbers = outputs.values[:, 0]
    plain = outputs.values.shape[1] == 1 and not outputs.codes.any() and np.isfinite(numbers).all()
    if plain and np.unique(numbers[:5000]).size > _CATEGORIES:
        return _histogram("number", numbers, labels)
    cells = experiment.uses[0].partition if experiment.uses else None
    if isinstance(cells, NumberCells | CornerCells) and outputs.values.shape[1] > 1:
        scores = cells.of(outputs) if isinstance(cells, NumberCells) else cells.depth(outputs)
        finite = np.isfinite(scores)
        if finite.mean() > 0.5 and np.unique(scores[finite][:5000]).size > _CATEGORIES:
            return _histogram("score", scores[finite], labels[finite])
        some = outputs.values[:1000]
        if len(np.unique(some, axis=0)) > len(some) / 2:  # hardly an output comes twice: a bar for each says nothing
            return _cells(cells, Sample(outputs, labels), structures)
    return _categories(Sample(outputs, labels), structures)


def _histogram(kind: Any, numbers: Any, labels: Any) -> Outputs:
    low, high = np.quantile(numbers, [0.002, 0.998])
    edges = np.linspace(low, high if high > low else low + 1, _CELLS + 1)
    inside = np.clip(numbers, edges[0], edges[-1])
    counts = [np.histogram(inside[labels == side], edges)[0] for side in (False, True)]
    names = tuple(f"{(a + b) / 2:.4g}" for a, b in pairwise(edges.tolist()))
    return Outputs(kind=kind, labels=names, edges=edges, first=counts[0], second=counts[1])


def _cells(cells: NumberCells | CornerCells, sample: Sample, structures: Sequence[str]) -> Outputs:
    counts = count(cells, sample)
    seen = np.flatnonzero(counts.sum(axis=1))
    names = tuple(with_names(cells.words(np.arange(cells.cells) == cell, structures), structures) for cell in seen)
    table = counts[seen].astype(np.int64)
    return Outputs(kind="category", labels=names, edges=None, first=table[:, 0], second=table[:, 1])


def _categories(sample: Sample, structures: Sequence[str]) -> Outputs:
    distinct, first_row, place, times = np.unique(
        keys_of(sample.outputs), return_index=True, return_inverse=True, return_counts=True
    )
    common = np.argsort(-times, kind="stable")[:_CATEGORIES]
    names = [show_output(sample.outputs, int(first_row[i]), structures) for i in common]
    counts = tally(place, sample.labels, distinct.size)
    rest = counts.sum(axis=0) - counts[common].sum(axis=0)
    table = counts[common]
    if rest.any():
        names.append(f"{distinct.size - common.size:,} others")
        table = np.concatenate([table, rest[None, :]])
    return Outputs(kind="category", labels=tuple(names), edges=None, first=table[:, 0], second=table[:, 1])


# ---- the numbers of an output by name


def with_names(words: str, structures: Sequence[str]) -> str:
    """Return words in which "entry k" is replaced by the key that leads to it, where all that have one agree on it.

    Args:
        words: An event in words.
        structures: What outputs looked like, without their numbers.

    >>> with_names("entry 2 < 5", ["#", "{'age': {'largest': #, 'sum': #}, 'rows': #}"])
    'age: sum < 5'
    >>> with_names("entry 1 < 4.2", ["#", "status 200, {'seconds': #}", "status 500, {'seconds': #, 'value': 'no'}"])
    'seconds < 4.2'
    >>> with_names("entry 1 minus entry 2 < 5", ["#", "[#, #]"])
    'entry 1 minus entry 2 < 5'
    """
    lists = [names for names in map(_names, map(content_of, structures[1:])) if names]

    def name(found: re.Match[str]) -> str:
        place = int(found[1]) - 1
        called = {names[place] for names in lists if place < len(names)}
        return called.pop() or found[0] if len(called) == 1 else found[0]

    return re.sub(r"\bentry (\d+)\b", name, words)


def _names(structure: str) -> list[str]:
    """Return the path of keys to each number of a structure; empty where there are no keys on the way."""
    found: list[str] = []
    _read(structure, 0, "", found)
    return found


def _read(text: str, at: int, path: str, found: list[str]) -> int:
    """Read one part of a structure and return where the next begins."""
    array, call = _ARRAY.match(text, at), _CALL.match(text, at)
    if text.startswith("#", at):
        found.append(path)
        return at + 1
    if array:
        size = 1
        for part in array[1].split(","):
            size *= int(part) if part.strip() else 1
        found += [f"number {k + 1} of {path}" if path else "" for k in range(size)]
        return array.end()
    if text.startswith("{", at):
        at += 1
        while at < len(text) and text[at] != "}":
            key = _KEY.match(text, at)
            if key is None:
                return len(text)
            at = _read(text, key.end(), f"{path}: {_plain(key[0][:-2])}" if path else _plain(key[0][:-2]), found)
            at += 2 if text.startswith(", ", at) else 0
        return at + 1
    if text.startswith("[", at) or call:
        at = call.end() if call else at + 1
        number = 0
        while at < len(text) and text[at] not in "])":
            number += 1
            at = _read(text, at, f"number {number} of {path}" if path else "", found)
            at += 2 if text.startswith(", ", at) else 0
        return at + 1
    quoted = _QUOTED.match(text, at)
    if quoted:
        return quoted.end()
    end = _END.search(text, at + 1)
    return end.start() if end else len(text)


def _plain(key: str) -> str:
    try:
        return str(ast.literal_eval(key))
    except (SyntaxError, ValueError):
        return key
