"""From an expression to an equation: which value results, and with what probability, for all values of the parents.

An expression over few parents becomes one table. Where that table would be large, the expression is taken apart at its
operations: the value of a part becomes a hidden variable with a small table of its own, so that a count of 1,000
variables costs 1,000 small steps.

Expressions also tell which variables can be exchanged without changing the model, so that one answer holds for all of
them: a thousand people who answer the same way have the same effect on a count. Two variables are *alike* when some
equation reads them (or what they alone lead to) only as members of one ``count(…)``, ``sum(…)``, ``min(…)``,
``max(…)``, ``any(…)`` or ``all(…)``, whose order does not matter, and everything before them is the same and belongs to
them alone. Exchanging them is then a symmetry of the model. Other symmetries are not looked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from escudo._validate import did_you_mean
from escudo.causal._inference import Factor, IntArray, Lookup, product
from escudo.causal._sem_equations import MAX_WHOLE, Equation, Ranges, Value, arrange, normalise, show, typed
from escudo.causal._sem_mechanisms import MECHANISMS, Kernel
from escudo.causal._sem_parser import Draw, Node, Operation, Val, Word, read_expression, words
from escudo.causal.formats._source import NamedText
from escudo.errors import InputError, ParseError

if TYPE_CHECKING:
    from escudo.causal import SEM


SPLIT = 1024  # cells of a deterministic step above which its operands become hidden variables
DENSE = 4096  # cells of an equation's table below which hidden variables are summed out at once
LARGEST = 2**22  # cells of a single step
MAX_RANGE = 2**14  # values of one variable or one part of an expression


# ---- compiling


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A value that depends on some variables: ``values[index[inputs…]]``."""

    inputs: tuple[str, ...]
    index: IntArray
    values: tuple[Value, ...]


def compile_expression(
    name: str, node: Node, ranges: Ranges, parents: tuple[str, ...], source: NamedText, text: str
) -> tuple[tuple[Value, ...], Equation]:
    """Return the range of ``name := node`` and its equation, which reads ``parents`` and is written out as ``text``.

    Raises:
        ParseError: An operation does not fit its operands, or a test can never come true.
    """
    compiler = _Compiler(name, ranges, parents, source)
    term = compiler.term(node)
    values, parts = compiler.finish(term)
    cells = math.prod(len(ranges[parent]) for parent in parents) * len(values)
    if cells <= DENSE and (len(parts) > 1 or not isinstance(parts[0], Lookup)):
        joint = product(parts, (*parents, name))
        decided = bool(np.all((joint.array == 0.0) | (joint.array == 1.0))) and not joint.lossy
        parts = (Lookup(parents, name, np.argmax(joint.array, axis=-1), len(values)) if decided else joint,)
    return values, Equation(name, parents, parts, text)


class _Compiler:
    """Builds the parts of one equation."""

    def __init__(self, name: str, ranges: Ranges, parents: tuple[str, ...], source: NamedText) -> None:
        self.name = name
        self.ranges = ranges
        self.parents = frozenset(parents)
        self.source = source
        self.sizes = {parent: len(ranges[parent]) for parent in parents}
        self.parts: list[Factor | Lookup] = []

    def term(self, node: Node) -> Term:
        if isinstance(node, Val):
            return Term((), np.zeros((), dtype=np.intp), (node.value,))
        if isinstance(node, Word):
            if node.name not in self.parents:
                return Term((), np.zeros((), dtype=np.intp), (node.name,))
            values = self.ranges[node.name]
            return Term((node.name,), np.arange(len(values)), values)
        if isinstance(node, Draw):
            return self._draw(node)
        return self._operation(node)

    def finish(self, term: Term) -> tuple[tuple[Value, ...], tuple[Factor | Lookup, ...]]:
        """Return the range and the parts, the last of which sets the variable itself."""
        last = self.parts[-1] if self.parts else None
        if last and term.inputs == last.names[-1:] and np.array_equal(term.index, np.arange(len(term.values))):
            return term.values, (*self.parts[:-1], last.rename({last.names[-1]: self.name}))  # it is the result itself
        final = Lookup(term.inputs, self.name, term.index, len(term.values))
        return term.values, (*self.parts, final)

    # -- deterministic operations ------------------------------------------------------------------------------------

    def _operation(self, node: Operation) -> Term:
        rule = OPERATIONS[node.kind]
        operands = [self.term(argument) for argument in node.arguments]
        for position, operand in enumerate(operands):
            if problem := rule.problem(operand.values, position):
                raise self.source.mark(problem, node.arguments[position].at)
        if rule.each is not None:
            operands = [self._combine(rule.each, [operand], node.at) for operand in operands]
        if rule.folds:
            result = operands[0]
            for operand in operands[1:]:
                result = self._combine(rule.function, [result, operand], node.at, vector=rule.vector)
        else:
            result = self._combine(rule.function, operands, node.at, vector=rule.vector)
        if node.kind in ("=", "!=") and (node.kind == "=") not in result.values:
            raise self._never_equal(node, operands)
        return result

    def _never_equal(self, node: Operation, operands: list[Term]) -> ParseError:
        wide, other = sorted(operands, key=lambda operand: -len(operand.values))
        hint = did_you_mean(show(other.values), [show([value]) for value in wide.values])
        if all(isinstance(value, bool) for value in operands[0].values):
            hint = " In count, any and all, a test applies to every name before it; write (X) for X by itself."
        return self.source.mark(
            f"the two sides are never equal: one takes {show(wide.values)}, the other {show(other.values)}.{hint}",
            node.at,
        )

    def _combine(
        self, function: Callable[..., Value], operands: list[Term], at: int, *, vector: np.ufunc | None = None
    ) -> Term:
        """Return the value of ``function`` of the operands, as a function of all their inputs together."""
        inputs = self._joint(operands)
        if self._cells(inputs) > SPLIT:
            operands = [self._hide(operand) if len(operand.inputs) > 1 else operand for operand in operands]
            inputs = self._joint(operands)
        shape = self._shape(inputs, 1, at)
        columns = [np.broadcast_to(_spread(operand, inputs), shape).ravel() for operand in operands]
        if vector is not None and all(_numeric(operand.values) for operand in operands):
            numbers = [np.array(operand.values)[column] for operand, column in zip(operands, columns, strict=True)]
            found, where = np.unique(vector(*numbers), return_inverse=True)
            values: tuple[Value, ...] = tuple(found.tolist())
        else:
            values, where = self._apply(function, operands, columns, at)
        if any(type(value) is int and abs(value) > MAX_WHOLE for value in values) or len(values) > MAX_RANGE:
            raise self.source.mark(f"this takes more than {MAX_RANGE:,} values, or a number beyond 2^53.", at)
        return Term(inputs, where.reshape(shape), values)

    def _apply(
        self, function: Callable[..., Value], operands: list[Term], columns: list[IntArray], at: int
    ) -> tuple[tuple[Value, ...], IntArray]:
        """Call ``function`` once for every combination of operands' values that occurs."""
        code = np.zeros(len(columns[0]), dtype=np.intp)
        for operand, column in zip(operands, columns, strict=True):
            code = code * len(operand.values) + column
        _, first, where = np.unique(code, return_index=True, return_inverse=True)
        try:
            met = [
                function(*(operand.values[column[cell]] for operand, column in zip(operands, columns, strict=True)))
                for cell in first
            ]
            values = arrange(self.name, met)
        except InputError as error:
            raise self.source.mark(str(error), at) from None
        position = {value: place for place, value in enumerate(values)}
        return values, np.array([position[value] for value in met], dtype=np.intp)[where]

    # -- randomness --------------------------------------------------------------------------------------------------

    def _draw(self, node: Draw) -> Term:
        operands = [self.term(argument) for argument in node.arguments]
        try:
            if node.kind == "choose":
                weights = normalise("choose", np.array([weight for _, weight in node.parameters], dtype=np.float64))
                chosen = self._random(Kernel.written(range(len(weights)), weights), [], node.at)
                return self._combine(_choice, [chosen, *operands], node.at)
            mechanism = MECHANISMS[node.kind]
            values = [operand.values for operand in operands]
            given: list[object] = [values, node.labels] if mechanism.form == "candidates" else [*values]
            return self._random(mechanism.law(*given, **dict(node.parameters)), operands, node.at)
        except ParseError:
            raise
        except InputError as error:
            raise self.source.mark(str(error), node.at) from None

    def _random(self, kernel: Kernel, operands: list[Term], at: int) -> Term:
        """Return a hidden random variable with the kernel's law given the operands."""
        inputs = self._joint(operands)
        if self._cells(inputs) * len(kernel.values) > DENSE:
            operands = [self._hide(operand) if len(operand.inputs) > 1 else operand for operand in operands]
            inputs = self._joint(operands)
        shape = self._shape(inputs, len(kernel.values), at)
        where = tuple(_spread(operand, inputs) for operand in operands)
        log = np.broadcast_to(kernel.log[where] if where else kernel.log, (*shape, len(kernel.values)))
        name = self._new(len(kernel.values))
        if kernel.exact is not None:  # the weights of choose and coin, which have no arguments
            self.parts.append(Factor((name,), kernel.exact))
        else:
            self.parts.append(Factor.from_log((*inputs, name), log))
        return Term((name,), np.arange(len(kernel.values)), kernel.values)

    # -- hidden variables --------------------------------------------------------------------------------------------

    def _hide(self, term: Term) -> Term:
        name = self._new(len(term.values))
        self.parts.append(Lookup(term.inputs, name, term.index, len(term.values)))
        return Term((name,), np.arange(len(term.values)), term.values)

    def _new(self, size: int) -> str:
        name = f"{self.name}/{len(self.parts) + 1}"
        self.sizes[name] = size
        return name

    def _joint(self, operands: list[Term]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for operand in operands for name in operand.inputs))

    def _cells(self, inputs: tuple[str, ...]) -> int:
        return math.prod(self.sizes[name] for name in inputs)

    def _shape(self, inputs: tuple[str, ...], outputs: int, at: int) -> list[int]:
        if self._cells(inputs) * outputs > LARGEST:
            raise self.source.mark(
                f"this needs a table of {self._cells(inputs) * outputs:.3g} cells (limit {LARGEST:,}).", at
            )
        return [self.sizes[name] for name in inputs]


def _spread(term: Term, inputs: tuple[str, ...]) -> IntArray:
    """Return the term's index with one axis per name in ``inputs``, of length 1 where it does not depend on it."""
    order = sorted(range(len(term.inputs)), key=lambda axis: inputs.index(term.inputs[axis]))
    sizes = dict(zip(term.inputs, term.index.shape, strict=True))
    return term.index.transpose(order).reshape([sizes.get(name, 1) for name in inputs])


def _numeric(values: tuple[Value, ...]) -> bool:
    return all(type(value) is int for value in values)


def _choice(position: int, *options: Value) -> Value:
    return options[position]


# ---- what each operation needs and gives


@dataclass(frozen=True, slots=True)
class Operator:
    """One operation.

    Attributes:
        sign: How messages call it.
        needs: What every operand must be: ``"numbers"``, ``"truth"`` or ``"anything"``; ``"test"`` is truth for the
            first one only.
        function: The operation on values; of two of them where it folds a list from the left.
        folds: True if it takes any number of operands.
        each: Where it folds: what every operand becomes before they are put together.
        vector: The same operation on integer arrays.
    """

    sign: str
    needs: str
    function: Callable[..., Any]  # on values of the kind it needs
    folds: bool = False
    each: Callable[[Any], Any] | None = None
    vector: np.ufunc | None = None

    def problem(self, values: tuple[Value, ...], position: int) -> str | None:
        """Say what is wrong with an operand that takes these values, or return None."""
        if self.needs == "numbers" and any(type(value) is not int for value in values):
            wrong = [value for value in values if type(value) is not int]
            return (
                f"{self.sign} needs whole numbers; this takes {show(wrong)}. Use count(... = value) to count a value."
            )
        if (self.needs == "truth" or (self.needs == "test" and position == 0)) and any(
            type(value) is not bool for value in values
        ):
            return f"{self.sign} needs true or false; this takes {show(values)}. Compare it, as in 'X = value'."
        return None


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise InputError("this divides by zero for some values.")
    return a // b


def _remainder(a: int, b: int) -> int:
    if b == 0:
        raise InputError("this divides by zero for some values.")
    return a % b


OPERATIONS: Mapping[str, Operator] = {
    "+": Operator("'+'", "numbers", lambda a, b: a + b, folds=True, vector=np.add),
    "sum": Operator("sum", "numbers", lambda a, b: a + b, folds=True, vector=np.add),
    "*": Operator("'*'", "numbers", lambda a, b: a * b),
    "//": Operator("'//'", "numbers", _divide),
    "%": Operator("'%'", "numbers", _remainder),
    "neg": Operator("'-'", "numbers", lambda a: -a),
    "abs": Operator("abs", "numbers", abs),
    "min": Operator("min", "numbers", min, folds=True, vector=np.minimum),
    "max": Operator("max", "numbers", max, folds=True, vector=np.maximum),
    "count": Operator("count", "truth", lambda a, b: a + b, folds=True, each=int, vector=np.add),
    "and": Operator("'and'", "truth", lambda a, b: a and b, folds=True),
    "all": Operator("all", "truth", lambda a, b: a and b, folds=True),
    "or": Operator("'or'", "truth", lambda a, b: a or b, folds=True),
    "any": Operator("any", "truth", lambda a, b: a or b, folds=True),
    "not": Operator("'not'", "truth", lambda a: not a),
    "<": Operator("'<'", "numbers", lambda a, b: a < b),
    "<=": Operator("'<='", "numbers", lambda a, b: a <= b),
    ">": Operator("'>'", "numbers", lambda a, b: a > b),
    ">=": Operator("'>='", "numbers", lambda a, b: a >= b),
    "=": Operator("'='", "anything", lambda a, b: typed(a) == typed(b)),
    "!=": Operator("'!='", "anything", lambda a, b: typed(a) != typed(b)),
    "if": Operator("'if'", "test", lambda test, a, b: a if test else b),
    "tuple": Operator("tuple", "anything", lambda a, b: a + b, folds=True, each=lambda a: (a,)),
}


# ---- variables that can be exchanged

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
    tree, _ = read_expression(NamedText(text, f"equation of {name}"))
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
