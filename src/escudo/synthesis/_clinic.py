"""A clinic, simulated: people with a chronic disease and their visits, to try linked tables on.

Nobody in it exists. Age and smoking act on the disease and on how often somebody comes; severity at a visit decides who
is treated, and treatment lowers severity at the next visit. An unmeasured frailty makes people come more often, in
shorter intervals, and their disease more severe: so how many visits somebody has and how the disease goes share a cause
that no column shows. It does not act on treatment, which therefore is not confounded given severity, age and smoking.
Prescriptions of a visit, if wanted, follow from its severity, from treatment and from age.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from escudo._validate import one_of, positive_integer, whole
from escudo.causal import CausalGraph
from escudo.table import LinkedSchema

if TYPE_CHECKING:
    import polars as pl

MOST = 20
_AGES = (30, 40, 50, 60, 70, 80, 90)
_FIRST = dt.date(2020, 1, 1)
_SMOKE = ("never", "former", "current")
_SEVERITY = ("none", "mild", "moderate", "severe")
_SYMPTOMS = ("no", "yes")
_MOST_DRUGS = 4
_DRUGS = ("painkiller", "inhaler", "steroid")
_DOSES = ("low", "high")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clinic:
    """Simulated people and their visits, with all that is public about them.

    Attributes:
        frames: The tables ``patients`` and ``visits``, and ``prescriptions`` of visits where they are wanted.
        schema: Their public description.
        graph: Which column causes which.
    """

    frames: dict[str, pl.DataFrame] = field(repr=False)
    schema: LinkedSchema
    graph: CausalGraph


def clinic(people: int = 2_000, *, treat: str | None = None, prescriptions: bool = False, seed: int = 0) -> Clinic:
    """Simulate a clinic of people with a chronic disease.

    Args:
        people: How many.
        treat: ``"yes"`` or ``"no"`` to have everybody treated so at every visit: what a trial would show.
        prescriptions: Whether visits have prescriptions, a table of rows of rows.
        seed: Which people.

    >>> made = clinic(100, seed=1)
    >>> {name: frame.columns for name, frame in made.frames.items()}
    {'patients': ['patient', 'entry', 'age', 'smoke'], 'visits': ['patient', 'date', 'severity', 'treat', 'pain']}
    """
    import polars as pl

    size = positive_integer("people", people)
    if treat is not None:
        one_of("treat", treat, _SYMPTOMS)
    rng = np.random.default_rng(whole("seed", seed))
    age = np.clip(rng.normal(58, 13, size), 30, 89.9).astype(np.int64)
    older = (age - 58) / 13
    smoke = (
        rng.random(size)[:, None]
        > np.cumsum(_softmax(np.stack([0.9 + 0.2 * older, 0.2 + 0 * older, -0.1 - 0.4 * older], 1)), axis=1)
    ).sum(1)
    frailty = rng.normal(0, 1, size)
    visits = np.minimum(rng.poisson(np.exp(1.36 + 0.22 * older + 0.18 * smoke + 0.42 * frailty)), MOST)
    entry = rng.integers(0, 365, size)
    day = entry + rng.exponential(60 * np.exp(-0.2 * frailty), size).astype(np.int64)
    rows: list[tuple[NDArray[np.int64], ...]] = []
    before = np.full(size, -1)
    treated = np.zeros(size, dtype=np.int64)
    for number in range(1, MOST + 1):
        here = np.flatnonzero(visits >= number)
        if not here.size:
            break
        base = 0.3 * older[here] + 0.3 * smoke[here] + 0.45 * frailty[here] - 0.3
        went_on = np.where(before[here] < 0, 0.0, 1.2 * (before[here] - 1.3) - 0.9 * treated[here] + 0.1)
        severity = _graded(base + went_on, rng)
        chance = _logistic(-1.7 + 1.05 * severity + 0.25 * older[here])
        given = (rng.random(here.size) < chance).astype(np.int64)
        if treat is not None:
            given = np.full(here.size, _SYMPTOMS.index(treat))
        pain = (rng.random(here.size) < _logistic(-1.6 + 0.8 * severity)).astype(np.int64)
        rows.append((here + 1, day[here], severity, given, pain))
        before[here], treated[here] = severity, given
        gap = rng.gamma(2.0, 45 * np.exp(-0.35 * frailty[here] - 0.25 * (severity - 1)))
        day[here] += 1 + np.minimum(gap, 900).astype(np.int64)
    person, when, severity, given, pain = (np.concatenate(part) for part in zip(*rows, strict=True))
    order = np.argsort(rng.random(person.size))
    patients = pl.DataFrame(
        {
            "patient": np.arange(1, size + 1),
            "entry": _dates(entry),
            "age": age,
            "smoke": np.array(_SMOKE)[smoke],
        }
    )
    table = pl.DataFrame(
        {
            "patient": person[order],
            "date": _dates(when[order]),
            "severity": np.array(_SEVERITY)[severity[order]],
            "treat": np.array(_SYMPTOMS)[given[order]],
            "pain": np.array(_SYMPTOMS)[pain[order]],
        }
    )
    frames = {"patients": patients, "visits": table}
    if prescriptions:
        of_visits = _prescribed(person, when, severity, given, older[person - 1], rng)
        place = np.argsort(np.argsort(person, kind="stable"), kind="stable")
        visit = place - np.searchsorted(np.sort(person), person) + 1  # which of the person's visits it is
        frames["visits"] = table.insert_column(1, pl.Series("visit", visit[order]))
        drugs = of_visits.pop("row")
        frames["prescriptions"] = pl.DataFrame({"patient": person[drugs], "visit": visit[drugs], **of_visits})
    return Clinic(frames=frames, schema=clinic_schema(prescriptions), graph=clinic_graph(prescriptions))


def _prescribed(
    person: NDArray[np.int64],
    when: NDArray[np.int64],
    severity: NDArray[np.int64],
    given: NDArray[np.int64],
    older: NDArray[np.float64],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return prescriptions by the place of their visit: more where it is severe, and others than the one before."""
    many = np.minimum(rng.poisson(np.exp(-0.9 + 0.45 * severity + 0.35 * given)), _MOST_DRUGS)
    rows, before = [], np.full(person.size, -1)
    day = when + rng.integers(0, 3, person.size)
    for number in range(1, _MOST_DRUGS + 1):
        here = np.flatnonzero(many >= number)
        liked = np.stack([0.5 - 0.2 * severity[here], 0.0 * here, -1.2 + 0.7 * severity[here]], 1)
        liked[np.arange(here.size), before[here]] -= np.where(before[here] < 0, 0.0, 1.5)
        drug = (rng.random(here.size)[:, None] > np.cumsum(_softmax(liked), axis=1)).sum(1)
        dose = (rng.random(here.size) < _logistic(-1.0 + 0.9 * (drug == 2) + 0.5 * older[here])).astype(np.int64)
        rows.append((here, day[here], drug, dose))
        before[here] = drug
        day[here] += rng.integers(0, 8, here.size)
    place, days, drug, dose = (np.concatenate(part) for part in zip(*rows, strict=True))
    order = np.argsort(rng.random(place.size))
    return {
        "row": place[order],
        "filled": _dates(days[order]),
        "drug": np.array(_DRUGS)[drug[order]],
        "dose": np.array(_DOSES)[dose[order]],
    }


def clinic_schema(prescriptions: bool = False) -> LinkedSchema:
    """Return what is public about the clinic's tables."""
    more: dict[str, Any] = {}
    if prescriptions:
        more["prescriptions"] = {
            "parent": "visits",
            "foreign_key": "patient",
            "row_key": "visit",
            "order": "filled",
            "most": _MOST_DRUGS,
            "count_edges": [0, 1, 2, 3],
            "start_edges": [0, 1, 2, 7],
            "gap_edges": [0, 2, 5, 10],
            "columns": {
                "drug": {"type": "categorical", "levels": list(_DRUGS)},
                "dose": {"type": "ordinal", "levels": list(_DOSES)},
            },
        }
    return LinkedSchema.from_dict(
        {
            "linked": {"people": "patients"},
            "tables": {
                "patients": {
                    "key": "patient",
                    "origin": "entry",
                    "columns": {
                        "age": {"type": "numeric", "edges": list(_AGES), "integer": True},
                        "smoke": {"type": "categorical", "levels": list(_SMOKE)},
                    },
                },
                "visits": {
                    "parent": "patients",
                    "foreign_key": "patient",
                    **({"key": "visit"} if prescriptions else {}),
                    "order": "date",
                    "most": MOST,
                    "count_edges": [0, 1, 2, 3, 5, 8, 12],
                    "start_edges": [0, 15, 45, 90, 180, 900],
                    "gap_edges": [0, 30, 60, 120, 240, 900],
                    "columns": {
                        "severity": {"type": "ordinal", "levels": list(_SEVERITY)},
                        "treat": {"type": "categorical", "levels": list(_SYMPTOMS)},
                        "pain": {"type": "categorical", "levels": list(_SYMPTOMS)},
                    },
                },
                **more,
            },
        }
    )


def clinic_graph(prescriptions: bool = False) -> CausalGraph:
    """Return which column of the clinic causes which; frailty is not among them."""
    more = [
        ("visits.severity", "prescriptions.count"),
        ("visits.treat", "prescriptions.count"),
        ("visits.severity", "prescriptions.drug"),
        ("prescriptions.drug@prev", "prescriptions.drug"),
        ("prescriptions.drug", "prescriptions.dose"),
        ("patients.age", "prescriptions.dose"),
    ]
    return CausalGraph.from_edges(
        [
            ("patients.age", "patients.smoke"),
            ("patients.age", "visits.count"),
            ("patients.smoke", "visits.count"),
            ("patients.age", "visits.severity"),
            ("patients.smoke", "visits.severity"),
            ("visits.severity@prev", "visits.severity"),
            ("visits.treat@prev", "visits.severity"),
            ("visits.severity", "visits.treat"),
            ("patients.age", "visits.treat"),
            ("visits.severity", "visits.pain"),
            ("visits.severity@prev", "visits.gap"),
            *(more if prescriptions else []),
        ]
    )


def _dates(days: NDArray[np.int64]) -> pl.Series:
    import polars as pl

    since = (_FIRST - dt.date(1970, 1, 1)).days
    return pl.Series(days + since).cast(pl.Int32).cast(pl.Date)


def _logistic(x: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    chance: NDArray[np.float64] = 1 / (1 + np.exp(-x))
    return chance


def _softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    found: NDArray[np.float64] = e / e.sum(axis=1, keepdims=True)
    return found


def _graded(latent: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return ordered levels of a logistic latent."""
    return np.searchsorted([-0.9, 0.6, 2.2], latent + rng.logistic(0, 1, latent.size)).astype(np.int64)
