r"""``explore.html``: what if, asked of a released model in a browser; one file, without a server.

The page holds the model's laws as numbers and works everything out itself (``templates/explore_model.js``), by the same
rules as :mod:`escudo.synthesis`: laws along the graph under do(), observed laws without one, and a refusal where the
graph leaves an answer open, and only rows that hold the public rules of the schema. It is post-processing of the
model, so it keeps the model's promise and costs nothing.

*Linked tables* have a page of their own (``templates/explore_linked.js``), which draws people with their rows as
:class:`~escudo.synthesis.LinkedModel` does: columns are set for people or from a row on, and shown by the number of the
row, with the histories of a few people. Of rows of rows it shows how many each row has, and says that it shows no more.
What the noise may have moved is not worked out there.

**Noise.** What the noise may have moved is worked out by drawing it again. A family's table of counts,
:math:`n\,p(pa, x)`, meets noise of the standard deviation :math:`σ` that its plan says, is cut off at zero and made a
law again; all answers follow from these laws as they do from the model's. A column with K configurations of causes was
counted by itself as well, with :math:`σ_1`: its sums have the variance of both counts together,
:math:`1 / (1/Kσ^2 + 1/σ_1^2)`. A table that was picked is taken to have one unit of noise, the most it can have.
Columns that were not measured as tables have no such figure, nor has anything that follows from them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from escudo.report._accuracy import noise_of
from escudo.report._page import promise_sentence, render, source_of
from escudo.table import COUNT, GAP, NUMBER, START, Categorical, Numeric

if TYPE_CHECKING:
    from markupsafe import Markup

    from escudo.causal import CausalGraph
    from escudo.privacy import Guarantee
    from escudo.synthesis import CausalModel, Conditional, LinkedModel, Model
    from escudo.table import ChildTable, Column

MOST_COLUMNS = 60
_MOST_NUMBERS = 200_000
_PICKED = "units of noise for picked tables"
_SCRIPTS = ("explore_model.js", "explore_charts.js", "explore.js")
_LINKED_SCRIPTS = ("explore_model.js", "explore_charts.js", "explore_linked.js")


def explorable(model: Model | LinkedModel) -> bool:
    """Return whether a page can ask a model: one with a law per column, few enough for a browser."""
    return not why_not_explorable(model)


def why_not_explorable(model: Model | LinkedModel) -> str:
    """Return why no page can ask a model, in words; an empty text if one can."""
    from escudo.synthesis import CausalModel, LinkedModel

    numbers = 0
    laws: list[Conditional] = []
    if isinstance(model, LinkedModel):
        shown = [model.rows[child.name] for child in model.schema.of_people]
        laws += [*model.people.values(), *(law for rows in shown for law in rows.first.values())]
        laws += [law for rows in shown for law in rows.next.values()]
    elif isinstance(model, CausalModel):
        laws += [*model.conditionals.values(), *model.observed.values()]
        numbers += sum(math.prod(model.schema.shape(rule.columns)) for rule in model.schema.checked_rules)
    else:
        return "the model has no law for each column"
    if len(model.schema.names) > MOST_COLUMNS:
        return f"the model has more than {MOST_COLUMNS} columns"
    for column in model.schema.columns.values():
        if isinstance(column, Numeric) and column.derived is not None:  # cells say too little to subtract them
            return f"{column.name} is worked out from {' and '.join(column.derived)}, which takes more than bins"
    numbers += sum(array.size for law in laws for array in law.arrays().values())
    return "" if numbers <= _MOST_NUMBERS else f"its laws are more than {_MOST_NUMBERS:,} numbers"


def explore_page(model: CausalModel | LinkedModel, *, dataset: str = "") -> str:
    """Return the page as one HTML file.

    Args:
        model: A model that is :func:`explorable`.
        dataset: What the table, or the linked tables, are called.
    """
    from markupsafe import Markup

    from escudo.synthesis import LinkedModel

    linked = isinstance(model, LinkedModel)
    script = "".join(source_of(name) for name in (_LINKED_SCRIPTS if linked else _SCRIPTS))
    return render(
        "explore_linked.html.j2" if linked else "explore.html.j2",
        title=f"What if, in {dataset}" if dataset else "What if",
        kind="Released model",
        source="asked in your browser",
        lead="Set a column and see how the others respond, beside how they were.",
        script=Markup(script),  # safe: our own files
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **(explored_linked(model) if isinstance(model, LinkedModel) else explored(model)),
    )


def explored(model: CausalModel) -> dict[str, Any]:
    """Return what the body of the page needs: the model as JSON, and words about it."""
    noise = _noise(model)
    return {
        "data": _json(_told(model, noise)),
        "noise": noise is not None,
        "silent": [] if noise is None else [name for name in model.schema.names if name not in noise],
        "sentence": promise_sentence(model.guarantee),
        "withheld": _withheld(model.guarantee),
    }


def _withheld(guarantee: Guarantee) -> str:
    if guarantee.none:
        return "Not for release: made without privacy"
    return "" if guarantee.for_release else "Not for release: the noise was seeded"


def explored_linked(model: LinkedModel) -> dict[str, Any]:
    """Return what the body of the page of linked tables needs: the model as JSON, and words about it."""
    schema = model.schema
    columns = [_named(name, schema.columns[name]) for name in model.people]
    people = {
        "rows": float(model.details.get("people") or 1),
        "columns": columns,
        "laws": [_law(name, law) for name, law in model.people.items()],
        "observed": [],
        "graph": _graph(model.graph),
        "stated": None,
        "rules": [],
        "noise": None,
    }
    for column in columns:
        child = next((one for one in schema.children if column["name"] == f"{one.name}.{COUNT}"), None)
        if child is not None:
            column |= _counted(child)
    told = {
        "name": schema.people,
        "people": people,
        "tables": [_rows(model, child) for child in schema.of_people],
        "graph": [name for name in model.graph.nodes if model.answers_do(name)],
    }
    return {
        "data": _json(told),
        "people": schema.people,
        "tables": [child.name for child in schema.of_people],
        "below": [{"name": child.name, "of": child.parent} for child in schema.children if child.parent],
        "sentence": promise_sentence(model.guarantee),
        "withheld": _withheld(model.guarantee),
    }


def _counted(child: ChildTable) -> dict[str, Any]:
    """Return how numbers of rows are told: they read better than bins of them."""
    return {"labels": count_labels(child), "edges": None, "kind": "integer"}


def _rows(model: LinkedModel, child: ChildTable) -> dict[str, Any]:
    rows = model.rows[child.name]
    number = child.column(NUMBER)
    assert isinstance(number, Numeric)
    many = [
        _named(f"{below.name}.{COUNT}", below.column(COUNT)) | _counted(below)
        for below in model.schema.of_rows(child.name)
    ]
    return {
        "name": child.name,
        "most": child.most,
        **{key: f"{child.name}.{key}" for key in (COUNT, START, GAP, NUMBER)},
        "countEdges": [*child.count_edges, child.most + 1],
        "numberEdges": _numbers(number.boundaries[:-1]),
        "lengths": _numbers(rows.lengths),
        "columns": [
            *(_named(f"{child.name}.{name}", child.column(name)) for name in (*child.schema.names, START, GAP)),
            *many,
        ],
        "first": [_law(name, law) for name, law in rows.first.items()],
        "next": [_law(name, law) for name, law in rows.next.items()],
    }


def count_labels(child: ChildTable) -> list[str]:
    """Return the bins of how many rows people have, in words."""
    edges = [*child.count_edges, child.most + 1]
    return [f"{low}" if high == low + 1 else f"{low} to {high - 1}" for low, high in pairwise(edges)]


def _json(value: object) -> Markup:
    """Return JSON that can stand in a page: nothing in it ends the element that holds it."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))  # safe: there is no way out of a script element without it


def _told(model: CausalModel, noise: Mapping[str, dict[str, float]] | None) -> dict[str, Any]:
    names = model.schema.names
    stated = model.stated
    return {
        "rows": float(model.details.get("rows") or 1),
        "columns": [_column(model.schema[name]) for name in names],
        "laws": [_law(name, model.conditionals[name]) for name in names],
        "observed": [_law(name, law) for name, law in model.observed.items()],
        "graph": _graph(model.graph),
        "stated": None if stated is None else _graph(stated),
        "rules": [
            {"columns": list(rule.columns), "shares": _numbers(rule.shares(model.schema.columns))}
            for rule in model.schema.checked_rules
        ],
        "noise": noise,
    }


def _graph(graph: CausalGraph) -> dict[str, Any]:
    return {
        "nodes": list(graph.nodes),
        "edges": [list(edge) for edge in graph.edges],
        "lines": [list(line) for line in graph.undirected_edges],
        "latents": sorted(graph.latents),
        "groups": {node: list(columns) for node, columns in graph.groups.items()},
    }


def _named(name: str, column: Column) -> dict[str, Any]:
    told = _column(column) | {"name": name}
    if isinstance(column, Numeric):
        told["edges"] = _numbers(column.boundaries)
        told.setdefault("ends", [column.shown(bound) for bound in column.bounds])
    return told


def _column(column: Column) -> dict[str, Any]:
    from escudo.synthesis import cell_values

    values = cell_values(column)
    told: dict[str, Any] = {
        "name": column.name,
        "kind": column.kind if isinstance(column, Categorical) else "number",
        "labels": list(column.labels),
        "missing": column.missing_code,
        "values": None if values is None else _numbers(values),
        "edges": None,
    }
    if isinstance(column, Numeric) and column.bins > 2:
        lower, upper = column.bounds
        told |= {"edges": _numbers(column.boundaries), "ends": [column.shown(lower), column.shown(upper)]}
        told |= {"days": True} if column.date is not None else {}
    return told


def _law(name: str, law: Conditional) -> dict[str, Any]:
    arrays = law.arrays()
    told: dict[str, Any] = {
        "column": name,
        "kind": law.kind,
        "parents": list(law.parents),
        "sizes": list(law.parent_sizes),
        "size": law.size,
    }
    if law.kind == "table":
        return told | {"table": _numbers(arrays["table"])}
    if law.kind == "logit":
        weights = [_numbers(arrays[f"weight{place}"]) for place in range(len(law.parents))]
        return told | {"intercept": _numbers(arrays["intercept"]), "weights": weights}
    strengths = [_numbers(arrays[f"strength{place}"]) for place in range(len(law.parents))]
    return told | {"leak": float(arrays["leak"][0]), "strengths": strengths}


def _numbers(array: Any) -> list[float]:  # Any: an array of any shape
    """Return numbers with nine digits, which is more than the noise leaves of them."""
    return [float(f"{number:.9g}") for number in array.ravel().tolist()]


def _noise(model: CausalModel) -> dict[str, dict[str, float]] | None:
    """Return the noise on each column's table in rows, by family and by itself; None where no table has any."""
    rows = int(model.details.get("rows") or 1)
    measured = {noise.what: noise.rows for noise in noise_of(model, max(rows, 1)) if noise.rows is not None}
    laws = model.conditionals
    families = {name: frozenset((name, *law.parents)) for name, law in laws.items()}
    tables: dict[frozenset[str], float] = {}
    for name, law in laws.items():
        for title in (name, f"{name} | {', '.join(law.parents)}"):
            if title in measured:
                tables[families[name] if "|" in title and law.parents else frozenset((name,))] = measured[title]
    found: dict[str, dict[str, float]] = {}
    for name, law in laws.items():
        if law.kind != "table":
            continue
        single = tables.get(frozenset((name,)))
        wider = [
            noise * math.sqrt(math.prod(model.schema[other].size for other in table - families[name]))
            for table, noise in tables.items()
            if families[name] <= table
        ]
        family = min(wider, default=measured.get(_PICKED) if law.parents else None)
        if family is not None:
            found[name] = {"family": family} | ({"single": single} if single is not None and law.parents else {})
    return found or None
