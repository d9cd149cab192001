"""Every mechanism of escudo audited against its own promise, and again with a promise it does not keep.

Run ``python benchmarks/audit_own.py`` from the repository's root; it takes some minutes and writes
``benchmarks/results/audit_own.json`` and ``audit_own.md``. Each mechanism is run on neighbours chosen to bring out its
whole loss, with seeded noise (``tests/statistical/test_noise.py`` shows that it has the law of the secure noise). The
claim is the guarantee the mechanism itself returns. Then a third of it is claimed, which must be rejected: an audit
that cannot fail says nothing. Where what must not depend on the data is computed without noise, such as a network's
start once its tables are released, neighbours are replayed with every noisy answer held. Exits with 1 if a promise is
broken or a false one passes.

Options: ``--runs N`` for each audit, ``--quick`` is a smoke run that writes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from escudo import mechanisms as m
from escudo.auditing import Audit, Replay, audit, replay
from escudo.effects import show_epsilon
from escudo.learning import learn_linked, learn_schema
from escudo.privacy import Guarantee, MemoryAccount, Relation, RunningTotal, SampledGaussianEvent
from escudo.synthesis import synthesize
from escudo.table import LinkedSchema, PrivateTable, Schema, outline

SEED = 20_261_117
RUNS = 20_000
RESULTS = Path(__file__).parent / "results"
AGES = Schema.from_dict({"age": {"type": "numeric", "confirmed": False}})
VISITS = LinkedSchema.from_dict(
    {
        "linked": {"people": "people", "dates": "days"},
        "tables": {
            "people": {"key": "id", "origin": "entry", "columns": {"sex": ["f", "m"]}},
            "visits": {
                **{"parent": "people", "foreign_key": "id", "order": "day", "most": 3, "confirmed": False},
                **{"start_edges": [0, 5, 50], "gap_edges": [0, 2, 50]},
                "columns": {"town": {"type": "categorical", "levels": [], "confirmed": False}},
            },
        },
    }
)


@dataclass(frozen=True, slots=True)
class Case:
    """One way of using a mechanism, with neighbours."""

    release: Callable[[Any, Any], Any]
    pairs: list[tuple[Any, ...]]
    caught: bool = True  # whether a third of the promise is refuted within the runs made here
    share: float = 1.0  # of the runs that others get, for slow ones

    def __call__(self, dataset: Any, rng: np.random.Generator) -> Any:
        """Return what is released."""
        return self.release(dataset, rng).value

    @property
    def claim(self) -> Guarantee:
        """What the mechanism promises of itself."""
        return self.release(self.pairs[0][0], 0).guarantee

    @property
    def last_bits(self) -> bool:
        """Whether the last bits of floats are looked at: noise is drawn on a grid."""
        return True


@dataclass(frozen=True, slots=True)
class Step:
    """One step of DP-SGD on gradients that bring out its whole loss: clipping, sampling and noise as in a training."""

    noise: float
    chance: float
    relation: Relation
    pairs: list[tuple[Any, ...]]
    caught: bool = True
    share: float = 1.0

    def __call__(self, dataset: Any, rng: np.random.Generator) -> Any:
        """Return one noisy sum."""
        return self.batch(dataset, 1, rng)[0]

    def batch(self, dataset: Any, count: int, rng: np.random.Generator) -> Any:
        """Return many noisy sums; as many as a power of two are drawn, since each new number is compiled for."""
        from escudo.mechanisms.dpsgd import audited_step

        step = audited_step(noise_multiplier=self.noise, sampling_probability=self.chance)
        return step.batch(dataset, 2 ** (count - 1).bit_length(), rng)[:count]

    @property
    def claim(self) -> Guarantee:
        """What the accountant says of one step, at δ = 0.01."""
        event = SampledGaussianEvent(
            noise_multiplier=self.noise, sampling_probability=self.chance, relation=self.relation
        )
        epsilon = RunningTotal.of(event).epsilon(0.01)
        return Guarantee(epsilon=epsilon, delta=0.01, relation=self.relation)

    @property
    def last_bits(self) -> bool:
        """Whether the last bits of floats are looked at: the noise of a training is claimed for real numbers."""
        return False


def counts_of(rows: list[str]) -> dict[str, int]:
    return {key: rows.count(key) for key in dict.fromkeys(rows)}


def people(rows: tuple[tuple[Any, str], ...]) -> pl.DataFrame:
    """Return rows (person, answer) as a polars table."""
    return pl.DataFrame({"who": [who for who, _ in rows], "ill": [ill for _, ill in rows]})


def people_on_dask(rows: tuple[tuple[Any, str], ...]) -> Any:
    """Return the same as a Dask frame of one row a partition; ids keep their Python types, whatever they are."""
    import dask
    import dask.dataframe as dd
    import pandas as pd

    frame = pd.DataFrame({"who": pd.Series([who for who, _ in rows], dtype=object), "ill": [ill for _, ill in rows]})
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_pandas(frame, npartitions=len(rows))


@dataclass(frozen=True, slots=True)
class People:
    """A noisy table of answers in which each person has at most ``most`` rows; the table is counted once a dataset."""

    frame_of: Callable[[tuple[tuple[Any, str], ...]], Any]
    most: int
    _counted: dict[str, Any] = field(default_factory=dict)

    def __call__(self, rows: tuple[tuple[Any, str], ...], seed: Any) -> m.Release[Any]:
        """Return the counts with Laplace noise, for a person who comes or goes."""
        schema = Schema.from_dict({"ill": ["no", "yes"]}, person_id="who", max_rows_per_person=self.most)
        key = repr(rows)  # 3 and 3.0 are equal, and are the point here
        if key not in self._counted:
            table = PrivateTable(self.frame_of(rows), schema)
            self._counted[key] = table.counts("ill"), table.sensitivity(relation="add_remove").l1
        counts, moved = self._counted[key]
        terms: dict[str, Any] = {"relation": "add_remove", "unit": "person", "max_rows_per_person": self.most}
        return m.laplace(counts, sensitivity=moved, epsilon=1.0, seed=seed, **terms)


OTHERS = ((7, "no"), (8.5, "yes"), ("x", "no"), (9, "yes"))
SPELLINGS = (1, 1.0, True)  # one person, written three ways

SMALL = np.full((3, 2), 0.1, np.float32)
WORST = np.array([[3.0, 4.0]], np.float32)  # a gradient of length 5: clipping makes it 1

CASES: dict[str, Case | Step] = {
    "laplace, integer": Case(lambda d, s: m.laplace(d, sensitivity=1, epsilon=1.0, seed=s), [(0, 1), (-3, -2)]),
    "laplace, real": Case(lambda d, s: m.laplace(d, sensitivity=0.5, epsilon=1.0, seed=s), [(0.3, 0.8), (0.0, 0.5)]),
    "laplace, vector": Case(
        lambda d, s: m.laplace(np.array(d), sensitivity=2, epsilon=1.0, seed=s),
        [((3, 4, 0), (4, 3, 0)), ((0, 0, 0), (2, 0, 0))],
    ),
    "gaussian, integer": Case(lambda d, s: m.gaussian(d, l2_sensitivity=1, rho=0.5, seed=s), [(0, 1)]),
    "gaussian, real": Case(
        lambda d, s: m.gaussian(d, l2_sensitivity=1.0, rho=0.5, seed=s), [(0.0, 1.0), (0.25, -0.75)]
    ),
    "gaussian, vector": Case(
        lambda d, s: m.gaussian(np.array(d), l2_sensitivity=5.0, rho=0.5, seed=s), [((0.0, 0.0), (3.0, 4.0))]
    ),
    "as_planned": Case(
        lambda d, s: m.as_planned(
            list(d), m.laplace_event(2, sensitivity=2, epsilon=1.0, integers=True), seed=s, purpose="audit"
        ),
        [((3, 4), (4, 3)), ((0, 0), (2, 0))],
    ),
    "exponential": Case(
        lambda d, s: m.exponential(list(d), sensitivity=1, epsilon=1.0, seed=s), [((1, 0, 0, 0), (0, 1, 1, 1))]
    ),
    "permute_and_flip": Case(
        lambda d, s: m.permute_and_flip(list(d), sensitivity=1, epsilon=1.0, seed=s),
        [((1, 0, 0, 0), (0, 1, 1, 1)), ((0, 2), (1, 1))],
    ),
    "quantiles": Case(
        lambda d, s: m.quantiles(d, [0.5], lower=0, upper=16, cells=16, epsilon=1.0, seed=s),
        [([0.5, 13.5, 13.5, 13.5], [15.5, 13.5, 13.5, 13.5])],  # many cells get worse, and two better
    ),
    "quantile_cells": Case(
        lambda d, s: m.quantile_cells(np.array(d), [0.45, 0.55], epsilon=2.0, seed=s),
        [((1, 0, 0, 0, 0, 0, 3, 0, 0), (0, 0, 0, 0, 0, 0, 3, 0, 1))],
    ),
    "gap_sign": Case(lambda d, s: m.gap_sign(d, sensitivity=1.0, epsilon=1.0, seed=s), [(0.0, 1.0), (-0.5, 0.5)]),
    "votes": Case(lambda d, s: m.votes(list(d), epsilon=1.0, seed=s), [((1, 1, -1), (1, 1, 1)), ((1, 0), (-1, 0))]),
    "propose_test_release": Case(
        lambda d, s: m.propose_test_release(d[0], d[1], sensitivity=1.0, epsilon=2.0, delta=0.01, seed=s),
        [((0.0, 6), (1.0, 7)), ((0.0, 1), (9.0, 1)), ((0.0, 2), (1.0, 1))],
    ),
    "log_iqr": Case(
        lambda d, s: m.log_iqr([np.array(d)], lower=0, upper=16, epsilon=2.0, delta=0.05, width=2.0, seed=s),
        [([0.0] * 5 + [1.1] * 3 + [7.3] * 2, [0.0] * 5 + [1.1] * 2 + [7.3] * 2 + [10.0])],  # distances 3 and 2
    ),
    "stable_histogram": Case(
        lambda d, s: m.stable_histogram(counts_of(d), epsilon=1.0, delta=0.05, seed=s),
        [(["a"] * 9 + ["b"] * 7, ["a"] * 8 + ["b"] * 8), (["a"] * 9 + ["b"], ["a"] * 10)],
    ),
    "learn_schema, levels": Case(
        lambda d, s: _levels(d, s),
        [(["a"] * 20 + ["b"] * 4, ["a"] * 20 + ["b"] * 5)],  # levels of 6 rows are shown
        share=0.2,
    ),
    "learn_schema, bounds": Case(
        lambda d, s: _bounds(d, s),
        [([1.0] * 60 + [200.0] * 20, [1.0] * 60 + [200.0] * 21)],  # a scale of about 23 rows is seen
        caught=False,  # the histogram of scales has half of ε, and a run takes long
        share=0.02,
    ),
    "learn_linked, levels": Case(
        lambda d, s: _levels_of_visits(d, s),
        [(("b",) * 4, ("b",) * 5)],  # one person more with a level that few have, at every visit
        caught=False,  # reading two tables takes long
        share=0.02,
    ),
    "laplace, a person's rows": Case(
        People(people, most=2),
        [(((7, "no"), (8, "yes")), ((7, "no"), (8, "yes"), *((3, "yes"),) * 5))],
    ),
    "laplace, a person's rows on Dask": Case(
        People(people_on_dask, most=1),
        [(OTHERS, (*OTHERS, *((name, "yes") for name in SPELLINGS)))],
    ),
    "train, a step on all rows": Step(1.0, 1.0, "add_remove", [(SMALL, np.concatenate([SMALL, WORST]))]),
    "train, a step on a sample": Step(0.7, 0.2, "add_remove", [(SMALL, np.concatenate([SMALL, WORST]))]),
    "train, a step with a row replaced": Step(
        2.0, 0.5, "replace_one", [(np.concatenate([SMALL, -WORST]), np.concatenate([SMALL, WORST]))]
    ),
}


NO_TRAINING: dict[str, Any] = {  # a rate at which the private steps move nothing: what is left is the start
    "steps": 1,
    "pretraining": 2,
    "learning_rate": 1e-37,
}
BITS = Schema.from_dict({name: ["no", "yes"] for name in "abc"})


def started(generator: str, **options: Any) -> Callable[[int, np.random.Generator], str]:
    """Return a mechanism that gives all of a network but what training taught it, as a fingerprint."""

    def fingerprint(rows: int, rng: np.random.Generator) -> str:
        frame = pl.DataFrame({name: [("no", "yes")[(row + place) % 2] for row in range(rows)]
                              for place, name in enumerate(BITS.names)})  # fmt: skip
        model = synthesize(
            PrivateTable(frame, BITS).under(relation="add_remove"),
            None,
            epsilon=2.0,
            delta=1e-6,
            generator=generator,
            seed=int(rng.integers(2**31)),
            **NO_TRAINING,
            **options,
        )
        digest = hashlib.sha256(repr(sorted(model.details.items())).encode())
        for layer in sorted(model.parameters):
            for name in sorted(model.parameters[layer]):
                digest.update(np.ascontiguousarray(model.parameters[layer][name], np.float64).tobytes())
        return digest.hexdigest()

    return fingerprint


REPLAYS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "vae, the start": (started("vae", latent=1, encoder=(4,), decoder=(4,)), [(70, 71)]),
}
"""Mechanisms of which everything but noise must be the same for neighbours, and neighbours: here, numbers of rows."""


def held(name: str) -> Replay:
    """Replay a mechanism on its neighbours with every noisy answer held."""
    mechanism, pairs = REPLAYS[name]
    return replay(mechanism, pairs, seed=SEED, repeats=1)


# A δ that is far too large for any table, so that an audit of a few thousand runs sees what it allows.
LEARNING: dict[str, Any] = {"epsilon": 1.0, "delta": 0.01, "relation": "add_remove", "accept_large_delta": True}


def _bounds(ages: list[float], seed: Any) -> m.Release[Any]:
    found = learn_schema(pl.DataFrame({"age": ages}), AGES, seed=seed, **LEARNING)
    column = found.value["age"]
    return replace(found, value=(column.lower, column.upper))


def _levels(towns: list[str], seed: Any) -> m.Release[Any]:
    frame = pl.DataFrame({"town": towns})
    found = learn_schema(frame, outline(frame), seed=seed, **LEARNING)
    return replace(found, value=tuple(map(str, found.value["town"].levels)))


def _levels_of_visits(towns: tuple[str, ...], seed: Any) -> m.Release[Any]:
    """Learn from people of whom twenty live in a, and more in the towns given; all have three visits."""
    lived = ["a"] * 20 + list(towns)
    visits = [(person, day, town) for person, town in enumerate(lived) for day in range(3)]
    frames = {
        "people": pl.DataFrame({"id": range(len(lived)), "entry": [0.0] * len(lived), "sex": ["f"] * len(lived)}),
        "visits": pl.DataFrame(visits, schema={"id": pl.Int64, "day": pl.Float64, "town": pl.String}, orient="row"),
    }
    account = MemoryAccount(**VISITS.neighbours(relation="add_remove").stated)
    terms = {name: value for name, value in LEARNING.items() if name != "relation"}
    found = learn_linked(frames, VISITS, seed=seed, most={"visits": 3}, account=account, **terms)
    return replace(found, value=tuple(map(str, found.value.child("visits").schema["town"].levels)))


def a_third(claim: Guarantee) -> Guarantee:
    """Return a promise that is too good: a third of ε, or a ninth of ρ."""
    plain: dict[str, Any] = {"relation": claim.relation, "unit": claim.unit}
    plain["max_rows_per_person"] = claim.max_rows_per_person
    if claim.rho is not None:
        return Guarantee(rho=claim.rho / 9, **plain)
    return Guarantee(epsilon=(claim.epsilon or 0) / 3, delta=claim.delta / 3, **plain)


def check(case: Case | Step, claim: Guarantee, runs: int, *, confidence: float = 0.999) -> Audit:
    return audit(
        case,
        claim=claim,
        pairs=case.pairs,
        max_runs=runs,
        confidence=confidence,
        seed=SEED,
        last_bits=case.last_bits,
        progress=False,
    )


def commit() -> str:
    """Return the commit that was measured, or "uncommitted" if the package has changes that are in none."""
    root = RESULTS.parent.parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=root, check=False)
        return done.stdout.strip() if done.returncode == 0 else "?"

    return "uncommitted" if git("status", "--porcelain", "--", "src") else git("rev-parse", "HEAD")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    runs = 2000 if options.quick else options.runs
    rows, wrong = [], 0
    for name, case in CASES.items():
        kept = check(case, case.claim, int(runs * case.share))
        broken = check(case, a_third(case.claim), int(runs * case.share))
        missed = case.caught and not broken.violated and not options.quick
        wrong += kept.violated + missed
        print(f"{name:24} {kept}\n{'':24} a third: {broken.stopped == 'violated'}, {broken.runs:,} runs")
        rows.append(
            {
                "mechanism": name,
                "claim": kept.claimed,
                "epsilon_lower": kept.epsilon_lower,
                "lower": kept.lower,
                "violated": kept.violated,
                "runs": kept.runs,
                "seconds": kept.seconds,
                "third_rejected": broken.violated,
                "third_runs": broken.runs,
            }
        )
    replays = {name: held(name) for name in REPLAYS}
    for name, found in replays.items():
        wrong += found.violated
        print(f"{name:24} {found}")
    if not options.quick:
        record = {
            "commit": commit(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "seed": SEED,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
            "confidence": 0.999,
            "rows": rows,
            "replays": [{"mechanism": name, "violated": one.violated} for name, one in replays.items()],
        }
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "audit_own.json").write_text(json.dumps(record, indent=1) + "\n")
        (RESULTS / "audit_own.md").write_text(markdown(record))
    return 1 if wrong else 0


def markdown(record: dict[str, Any]) -> str:
    lines = [
        "# escudo's own mechanisms, audited",
        "",
        f"{record['date'][:10]}, commit {record['commit'][:12]}, seed {record['seed']}. {record['machine']}.",
        "",
        "ε ≥ is the lower bound at the claim's δ (0 for claims in ρ), with 99.9 % confidence each. The last column",
        "claims a third of ε and δ, or a ninth of ρ.",
        "",
        "| mechanism | its claim | found | runs | claim | a third of it |",
        "|---|---|--:|--:|---|---|",
    ]
    for row in record["rows"]:
        found = f"ε ≥ {show_epsilon(row['epsilon_lower'])}" + (
            "" if row["lower"] is None else f", ρ ≥ {row['lower']:.3g}"
        )
        third = f"rejected after {row['third_runs']:,} runs" if row["third_rejected"] else "not rejected"
        kept = "**violated**" if row["violated"] else "stands"
        lines.append(f"| {row['mechanism']} | {row['claim']} | {found} | {row['runs']:,} | {kept} | {third} |")
    lines += ["", "Replayed on neighbours with every noisy answer held, so that nothing at all may change:", ""]
    lines += [
        f"* {row['mechanism']}: {'**changed**' if row['violated'] else 'nothing changed'}" for row in record["replays"]
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
