"""Variables that can be exchanged without changing the model: one answer holds for all of them.

A thousand people who answer the same way have the same effect on a count. Two variables are *alike* when some equation
reads them (or what they alone lead to) only as members of one ``count(…)``, ``sum(…)``, ``min(…)``, ``max(…)``,
``any(…)`` or ``all(…)``, whose order does not matter, and everything before them is the same and belongs to them alone.
Exchanging them is then a symmetry of the model. Other symmetries are not looked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from escudo.causal._inference import Lookup
from escudo.causal._sem_lexer import Source
from escudo.causal._sem_parser import read_expression
from escudo.causal._sem_syntax import Draw, Node, Operation, Val, Word, words

if TYPE_CHECKING:
    from escudo.causal import SEM

__all__ = ["alike", "commuting"]

_COMMUTATIVE = ("count", "sum", "min", "max", "any", "all")
_DEEPEST = 50  # how far back a branch is followed


def alike(sem: SEM) -> tuple[tuple[str, ...], ...]:
    """Return the variables in classes of exchangeable ones, in the model's order; most classes have one member."""
    children: dict[str, list[str]] = {name: [] for name in sem.variables}
    for name in sem.endogenous:
        for parent in sem.parents(name):
            children[parent].append(name)
    laws = {law.names[0]: law.array.tobytes() for law in sem.population if len(law.names) == 1}

    def branch(name: str, depth: int = 0) -> tuple[Hashable, tuple[str, ...]]:
        """Return what stands before and including ``name``, without names, and the names in the same order.

        What several variables read is not part of a branch: it stays where it is when branches are exchanged.
        """
        if len(children[name]) != 1 or depth > _DEEPEST:
            return name, ()
        if name not in sem.equations:
            return (sem.range(name), laws.get(name, name)), (name,)
        before = [branch(parent, depth + 1) for parent in sem.parents(name)]
        shape: Hashable = (sem.range(name), _numbers(sem, name), tuple(key for key, _ in before))
        return shape, (name, *(other for _, names in before for other in names))

    home: dict[str, tuple[str, ...]] = {}
    for name in sem.endogenous:
        for members in commuting(sem, name):
            groups: dict[Hashable, list[tuple[str, ...]]] = {}
            for member in members:
                key, names = branch(member)
                groups.setdefault(key, []).append(names)
            for branches in (found for found in groups.values() if len(found) > 1):
                for column in zip(*branches, strict=True):
                    home |= dict.fromkeys(column, column)
    return tuple(dict.fromkeys(home.get(name, (name,)) for name in sem.variables))


def _numbers(sem: SEM, name: str) -> Hashable:
    """Return an equation's tables with names replaced by their places among the parents."""
    place = {parent: i for i, parent in enumerate((*sem.parents(name), name))}
    found = []
    for part in sem.equation(name).parts:
        table = part.index if isinstance(part, Lookup) else part.log
        roles = tuple(place.setdefault(other, len(place)) for other in part.names)
        found.append((roles, table.shape, table.tobytes()))
    return tuple(found)


def commuting(sem: SEM, name: str) -> list[tuple[str, ...]]:
    """Return the groups of parents whose order does not matter to the equation of ``name``."""
    text = sem.equation(name).text
    if text is None:
        return []
    tree, _ = read_expression(Source(text, f"equation of {name}"))
    parents = set(sem.parents(name))
    times = Counter(word.name for word in words(tree))
    found: dict[Hashable, list[str]] = {}
    for call in (node for node in _nodes(tree) if isinstance(node, Operation) and node.kind in _COMMUTATIVE):
        for argument in call.arguments:
            names = [word.name for word in words(argument) if word.name in parents]
            if len(names) == 1 and times[names[0]] == 1:  # e.g. D1 = pos, the same for every member but for its name
                found.setdefault((id(call), _without(argument, names[0])), []).append(names[0])
    return [tuple(members) for members in found.values() if len(members) > 1]


def _nodes(tree: Node) -> Iterator[Node]:
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, (Operation, Draw)):
            stack += node.arguments


def _without(node: Node, name: str) -> Node:
    """Return the expression with a blank in place of a variable."""
    if isinstance(node, Word):
        return Word("", 0) if node.name == name else node
    if isinstance(node, Val):
        return node
    return replace(node, arguments=tuple(_without(argument, name) for argument in node.arguments))
