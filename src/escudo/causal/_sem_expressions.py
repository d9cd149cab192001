"""From an expression to an equation: which value results, and with what probability, for all values of the parents.

An expression over few parents becomes one table. Where that table would be large, the expression is taken apart at its
operations: the value of a part becomes a hidden variable with a small table of its own, so that a count of 1,000
variables costs 1,000 small steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from escudo._validate import did_you_mean
from escudo.causal._inference import Factor, IntArray, Lookup, product
from escudo.causal._sem_equation import Equation
from escudo.causal._sem_lexer import MAX_WHOLE, Source
from escudo.causal._sem_mechanisms import MECHANISMS, Kernel
from escudo.causal._sem_operations import OPERATIONS
from escudo.causal._sem_syntax import Draw, Node, Operation, Val, Word
from escudo.causal._sem_values import Value, arrange, normalised, show
from escudo.errors import InputError, ParseError

__all__ = ["compile_expression"]

SPLIT = 1024  # cells of a deterministic step above which its operands become hidden variables
DENSE = 4096  # cells of an equation's table below which hidden variables are summed out at once
LARGEST = 2**22  # cells of a single step
MAX_RANGE = 2**14  # values of one variable or one part of an expression

Ranges = Mapping[str, tuple[Value, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A value that depends on some variables: ``values[index[inputs…]]``."""

    inputs: tuple[str, ...]
    index: IntArray
    values: tuple[Value, ...]


def compile_expression(
    name: str, node: Node, ranges: Ranges, *, parents: tuple[str, ...], source: Source, text: str
) -> tuple[tuple[Value, ...], Equation]:
    """Return the range of ``name := node`` and its equation.

    Args:
        name: The variable.
        node: The expression.
        ranges: The values of at least the variables it reads.
        parents: The variables it reads, in the order the equation lists them.
        source: The text, for messages.
        text: The expression as it is to be written out again.

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
    return values, Equation(name=name, parents=parents, parts=parts, text=text)


class _Compiler:
    """Builds the parts of one equation."""

    def __init__(self, name: str, ranges: Ranges, parents: tuple[str, ...], source: Source) -> None:
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
                raise self.source.error(node.arguments[position].offset, problem)
        if rule.each is not None:
            operands = [self._combine(rule.each, [operand], node.offset) for operand in operands]
        if rule.folds:
            result = operands[0]
            for operand in operands[1:]:
                result = self._combine(rule.function, [result, operand], node.offset, vector=rule.vector)
        else:
            result = self._combine(rule.function, operands, node.offset, vector=rule.vector)
        if node.kind in ("=", "!=") and (node.kind == "=") not in result.values:
            raise self._never_equal(node, operands)
        return result

    def _never_equal(self, node: Operation, operands: list[Term]) -> ParseError:
        wide, other = sorted(operands, key=lambda operand: -len(operand.values))
        hint = did_you_mean(show(other.values), [show([value]) for value in wide.values])
        if all(isinstance(value, bool) for value in operands[0].values):
            hint = " In count, any and all, a test applies to every name before it; write (X) for X by itself."
        return self.source.error(
            node.offset,
            f"the two sides are never equal: one takes {show(wide.values)}, the other {show(other.values)}.{hint}",
        )

    def _combine(
        self, function: Callable[..., Value], operands: list[Term], offset: int, *, vector: np.ufunc | None = None
    ) -> Term:
        """Return the value of ``function`` of the operands, as a function of all their inputs together."""
        inputs = self._joint(operands)
        if self._cells(inputs) > SPLIT:
            operands = [self._hide(operand) if len(operand.inputs) > 1 else operand for operand in operands]
            inputs = self._joint(operands)
        shape = self._shape(inputs, 1, offset)
        columns = [np.broadcast_to(_spread(operand, inputs), shape).ravel() for operand in operands]
        if vector is not None and all(_numeric(operand.values) for operand in operands):
            numbers = [np.array(operand.values)[column] for operand, column in zip(operands, columns, strict=True)]
            found, where = np.unique(vector(*numbers), return_inverse=True)
            values: tuple[Value, ...] = tuple(found.tolist())
        else:
            values, where = self._apply(function, operands, columns, offset)
        if any(type(value) is int and abs(value) > MAX_WHOLE for value in values) or len(values) > MAX_RANGE:
            raise self.source.error(offset, f"this takes more than {MAX_RANGE:,} values, or a number beyond 2^53.")
        return Term(inputs, where.reshape(shape), values)

    def _apply(
        self, function: Callable[..., Value], operands: list[Term], columns: list[IntArray], offset: int
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
            raise self.source.error(offset, str(error)) from None
        position = {value: place for place, value in enumerate(values)}
        return values, np.array([position[value] for value in met], dtype=np.intp)[where]

    # -- randomness --------------------------------------------------------------------------------------------------

    def _draw(self, node: Draw) -> Term:
        operands = [self.term(argument) for argument in node.arguments]
        try:
            if node.kind == "choose":
                weights = normalised("choose", np.array([weight for _, weight in node.parameters], dtype=np.float64))
                chosen = self._random(Kernel.written(range(len(weights)), weights), [], node.offset)
                return self._combine(_choice, [chosen, *operands], node.offset)
            mechanism = MECHANISMS[node.kind]
            values = [operand.values for operand in operands]
            given: list[object] = [values, node.labels] if mechanism.form == "candidates" else [*values]
            return self._random(mechanism.law(*given, **dict(node.parameters)), operands, node.offset)
        except ParseError:
            raise
        except InputError as error:
            raise self.source.error(node.offset, str(error)) from None

    def _random(self, kernel: Kernel, operands: list[Term], offset: int) -> Term:
        """Return a hidden random variable with the kernel's law given the operands."""
        inputs = self._joint(operands)
        if self._cells(inputs) * len(kernel.values) > DENSE:
            operands = [self._hide(operand) if len(operand.inputs) > 1 else operand for operand in operands]
            inputs = self._joint(operands)
        shape = self._shape(inputs, len(kernel.values), offset)
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

    def _shape(self, inputs: tuple[str, ...], outputs: int, offset: int) -> list[int]:
        if self._cells(inputs) * outputs > LARGEST:
            raise self.source.error(
                offset, f"this needs a table of {self._cells(inputs) * outputs:.3g} cells (limit {LARGEST:,})."
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
