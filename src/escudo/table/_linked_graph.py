r"""What a graph over linked tables says: which law each column follows, of people, of first rows and of next ones.

Columns have whole names, and ``@prev`` marks the row before::

    "patients.age" -> "visits.count";          "patients.age" -> "visits.severity"
    "visits.severity@prev" -> "visits.severity";  "visits.severity" -> "visits.treat"

Person i has columns X, and in each table of rows n rows in order. With t the number of a row,

.. math:: p(x, n, v) = \prod_j p(x_j \mid pa) \; p(n \mid pa) \prod_t \prod_q p(v_{tq} \mid v_t, v_{t-1}, x, n),

so tables of rows are independent given people, and rows of rows given their row and the person: each row has a number
of them, which is a column of the row like others, and they follow a law of the same form, with columns of the row
(``"visits.severity" -> "prescriptions.drug"``) beside those of people. ``prescriptions.drug@prev`` is the row before of
the same visit. An arrow may lead from a row to the next, and to no later one: unrolled over all rows the graph has no
cycle exactly if that of one row has none, which every :class:`~escudo.causal.CausalGraph` says of itself, as a column
of the row before is another node. A column that nothing of the row before (or the gap to it) acts on has one law for
all rows; every other has one for first rows, without these causes, and one for the rest.

**The number of rows** is among what every column of rows is given (of rows of rows, how many their row has), unless
``count_edges=False``. That is no claim about causes. Every person has one voice, so people with many rows speak for
fewer of them than they have; given the number of rows this has no effect on a law (``escudo.table._linked``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from escudo._validate import did_you_mean
from escudo.causal import CausalGraph, Plates
from escudo.errors import GraphError
from escudo.table._linked import PREVIOUS
from escudo.table._linked_schema import COUNT, GAP, NUMBER, START, ChildTable, LinkedSchema

Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowLaws:
    """What each column of a table of rows is given, columns in an order to draw them.

    How many rows of their own these rows have is among the columns.

    Attributes:
        first: In a person's first row; of rows of rows, in the first of each row.
        next: In the rows after it; empty where there is one row at most.
        shared: The columns with one law for all rows.
    """

    first: Mapping[str, Columns]
    next: Mapping[str, Columns]
    shared: frozenset[str]


@dataclass(frozen=True, slots=True)
class LinkedStructure:
    """What each column is given.

    Attributes:
        people: Columns of people, and each table's number of rows, in an order to draw them.
        rows: The laws of each table of rows.
        stated: The graph as it was given; one that names nothing where there was none.
    """

    people: Mapping[str, Columns]
    rows: Mapping[str, RowLaws]
    stated: CausalGraph

    @property
    def device(self) -> frozenset[tuple[str, str]]:
        """The arrows that are no claim about causes: from a number of rows to columns of these rows."""
        found = set()
        for table, laws in self.rows.items():
            count = f"{table}.{COUNT}"
            for each in (laws.first, laws.next):
                found |= {(count, name) for name, given in each.items() if count in given}
        return frozenset(found) - set(self.stated.edges)


def check_linked_graph(schema: LinkedSchema, graph: CausalGraph) -> None:
    """Raise unless linked tables can follow a graph.

    Raises:
        GraphError: Says which arrow, and what to do.
    """
    for what in ("latents", "undirected_edges", "groups"):
        if getattr(graph, what):
            words = what.replace("_", " ")
            raise GraphError(f"A graph over linked tables has no {words} in this version; take them out.")
    for node in graph.nodes:
        _check_node(schema, node)
    for arrow in graph.edges:
        _check_arrow(schema, *arrow)


def linked_structure(schema: LinkedSchema, graph: CausalGraph | None, *, count_edges: bool = True) -> LinkedStructure:
    """Read off a graph what each column of linked tables is given.

    Columns of rows that the graph does not name are given themselves in the row before.

    Raises:
        GraphError: If the graph has what linked tables cannot follow; says which arrow, and what to do.
    """
    stated = CausalGraph.from_edges([]) if graph is None else graph
    check_linked_graph(schema, stated)
    people = _people(schema, stated)
    return LinkedStructure(
        {name: people[name] for name in _ordered(people)},
        {child.name: _rows(schema, stated, child, count_edges) for child in schema.children},
        stated,
    )


def linked_picture(schema: LinkedSchema, graph: CausalGraph, *, title: str | None = None) -> str:
    """Return the picture of a graph over linked tables as SVG, drawn as plates.

    One plate is around each person, with a plate in it for each table of rows, and in that one for rows of rows. A
    column of the row before has a broken outline, and so have the arrows from it to the next row. How many rows
    somebody has is a column of people, how many a row has one of rows.

    Args:
        schema: The tables.
        graph: Which column causes which, by whole names.
        title: What a screen reader says first.

    Raises:
        GraphError: If the graph has what linked tables cannot follow.
    """
    check_linked_graph(schema, graph)
    labels = {}
    rows: dict[str, list[str]] = {child.name: [] for child in schema.children}
    for node in graph.nodes:
        name = node.removesuffix(PREVIOUS)
        table = schema.table_of(name)
        inside = table
        if table != schema.people and node == f"{table}.{COUNT}":
            labels[node] = f"{COUNT} of {table}"
            inside = schema.child(table).parent
        else:
            labels[node] = name.removeprefix(f"{table}.") + ("" if name == node else "\nrow before")
        while inside in rows:  # a plate holds the nodes of those inside it
            rows[inside].append(node)
            inside = schema.child(inside).parent
    around = {f"each of {schema.people}": graph.nodes}
    for child in (each for one in schema.of_people for each in (one, *schema.of_rows(one.name))):
        caption = f"each row of {child.name}" + (", in order" if child.order is not None else "")
        around |= {caption: tuple(rows[child.name])} if rows[child.name] else {}
    before = [node for node in graph.nodes if node.endswith(PREVIOUS)]
    return graph.to_svg(labels=labels, plates=Plates(around=around, before=frozenset(before)), title=title)


def _people(schema: LinkedSchema, graph: CausalGraph) -> dict[str, Columns]:
    names = [*(f"{schema.people}.{name}" for name in schema.person.names), *_counts(schema)]
    return {name: _sorted(names, graph.parents(name) if name in graph else ()) for name in names}


def _counts(schema: LinkedSchema) -> list[str]:
    """Return the numbers of rows that are columns of people."""
    return [f"{child.name}.{COUNT}" for child in schema.of_people]


def _rows(schema: LinkedSchema, graph: CausalGraph, child: ChildTable, count_edges: bool) -> RowLaws:
    table = child.name
    count, number, start, gap = (f"{table}.{name}" for name in (COUNT, NUMBER, START, GAP))
    own = [f"{table}.{name}" for name in child.schema.names]
    several = [f"{nested.name}.{COUNT}" for nested in schema.of_rows(table)]
    person = [f"{schema.people}.{name}" for name in schema.person.names]
    counts = [count, *(name for name in _counts(schema) if name != count)]
    above = [f"{child.parent}.{name}" for name in (NUMBER, *schema.schema_of(child.parent))] if child.parent else []

    def given(name: str) -> set[str]:
        unnamed = {name + PREVIOUS} if name in own else set()
        found = set(graph.parents(name)) if name in graph else unnamed
        return found | ({count} if count_edges else set())

    def placed(name: str, causes: Iterable[str]) -> Columns:
        """Put what matters least first: it is left out first where a law has few rows to go by."""
        lagged = [one + PREVIOUS for one in own if one != name]
        order = [*counts, number, *person, *above, start, gap, *own, *lagged, name + PREVIOUS]
        return _sorted(order, causes)

    def before(cause: str) -> bool:
        return cause.endswith(PREVIOUS) or cause == gap

    parents = {name: given(name) for name in (*own, *several)}
    shared = frozenset(name for name, causes in parents.items() if not any(map(before, causes)) and start not in causes)
    timed = child.order is not None
    first = {start: placed(start, given(start))} if timed else {}
    first |= {
        name: placed(name, {c for c in causes if not before(c) and c != number}) for name, causes in parents.items()
    }
    after = {gap: placed(gap, given(gap))} if timed else {}
    after |= {name: placed(name, {c for c in causes if c != start}) for name, causes in parents.items()}
    # A law for all rows holds the number of the row too, if the graph names it.
    first |= {name: after[name] for name in shared}
    return RowLaws(
        {name: first[name] for name in _ordered(first)},
        {name: after[name] for name in _ordered(after)} if child.most > 1 else {},
        shared,
    )


def _ordered(parents: Mapping[str, Iterable[str]]) -> Columns:
    """Return the columns so that causes among them come first."""
    arrows = [(cause, name) for name, causes in parents.items() for cause in causes if cause in parents]
    return CausalGraph.from_edges(arrows, nodes=parents).topological_order()


def _sorted(order: list[str], causes: Iterable[str]) -> Columns:
    return tuple(sorted(causes, key=order.index))


def _check_node(schema: LinkedSchema, node: str) -> None:
    name = node.removesuffix(PREVIOUS)
    if name not in schema.columns:
        hint = did_you_mean(name, schema.names)
        raise GraphError(f"The graph names {node!r}, which is no column of the tables; names are TABLE.COLUMN.{hint}")
    if name != node:
        table = schema.table_of(name)
        derived = name.removeprefix(f"{table}.") in (COUNT, START, GAP, NUMBER)
        if table == schema.people or derived:
            raise GraphError(f"The graph names {node!r}: only a column of rows has one in the row before.")


def _check_arrow(schema: LinkedSchema, cause: str, effect: str) -> None:
    arrow = f"The arrow {cause!r} -> {effect!r}"
    if effect.endswith(PREVIOUS):
        raise GraphError(f"{arrow} leads to the row before. Causes come first: turn it round, or take it out.")
    source, target = (schema.table_of(name.removesuffix(PREVIOUS)) for name in (cause, effect))
    what = effect.removeprefix(f"{target}.")
    if target != schema.people and what == NUMBER:
        raise GraphError(f"{arrow}: nothing causes which row of a person it is; take it out.")
    parent = "" if target == schema.people else schema.child(target).parent
    if parent:
        _check_into_rows_of_rows(schema, cause, effect, parent)
    elif source != schema.people and schema.child(source).parent:
        whom = "people" if target == schema.people else f"rows of {target}"
        raise GraphError(
            f"{arrow} leads from {source}, which are rows of {schema.child(source).parent}, to {whom}, which are drawn "
            "first; turn it round, or take it out."
        )
    counted = cause in _counts(schema)
    if not parent and (target == schema.people or what == COUNT):
        if source != schema.people and not (counted and target != schema.people):
            whom = "people" if target == schema.people else "how many rows they have"
            raise GraphError(
                f"{arrow} leads from rows to {whom}, which are drawn first; turn it round, or take it out."
            )
        return
    if source not in (schema.people, target, parent) and not counted:
        raise GraphError(
            f"{arrow} leads from one table of rows to another. They are drawn apart, given people; if their rows "
            "act on each other, make them one table with a column that says of which kind each row is."
        )
    numbered = cause == f"{target}.{NUMBER}" and what == GAP
    many = counted or cause == f"{target}.{COUNT}"
    same = source == target and not cause.endswith(PREVIOUS) and not many and not numbered
    if what in (START, GAP) and source == target and not many and (same or what == START):
        whom = f"people and of {parent}" if parent else "people"
        allowed = whom if what == START else f"{whom}, and of the row before (@prev),"
        raise GraphError(f"{arrow}: the days before a row come first; only columns of {allowed} can be their cause.")


def _check_into_rows_of_rows(schema: LinkedSchema, cause: str, effect: str, parent: str) -> None:
    """Raise unless a column of rows of rows, or how many of them a row has, can have this cause."""
    target = schema.table_of(effect)
    arrow = f"The arrow {cause!r} -> {effect!r}"
    if cause.startswith(f"{target}.") and effect == f"{target}.{COUNT}":
        raise GraphError(
            f"{arrow}: how many rows there are comes before what is in them; turn it round, or take it out."
        )
    if schema.table_of(cause.removesuffix(PREVIOUS)) != parent or cause == f"{parent}.{COUNT}":
        return
    if effect == f"{target}.{COUNT}":
        return  # which is a column of the row itself
    if cause.endswith(PREVIOUS) or cause in (f"{parent}.{START}", f"{parent}.{GAP}"):
        raise GraphError(
            f"{arrow}: of {parent}, only columns of the row that {target} belong to can be their cause, and its "
            f"number. Make it a column of {parent}, or lead the arrow to {target}.{COUNT}."
        )
