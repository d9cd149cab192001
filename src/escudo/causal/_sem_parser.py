"""From the text of a model to its pieces: tokens, expressions and definitions, each with its place in the text.

A recursive-descent reader of the format that :mod:`escudo.causal._sem_text` describes. It knows nothing of ranges; it
says what is wrong and marks the place. Length, nesting and the number of names that families stand for are limited, so
that no text can exhaust the stack or the machine.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from escudo._validate import did_you_mean
from escudo.causal._sem_equations import FUNCTIONS, MAX_WHOLE, WORDS, Value
from escudo.causal._sem_mechanisms import MECHANISMS
from escudo.causal.formats._source import NamedText, Token
from escudo.errors import ParseError

MAX_TEXT = 1_000_000
MAX_NESTING = 40
MAX_FAMILY = 10_000
MAX_NAMES = 200_000  # how many names all families of one text may stand for together
MAX_WORK = 1_000_000  # tokens read, where those of a family are read once for each member
_MAX_NUMBER = 40
COMPARISONS = ("=", "==", "!=", "<", "<=", ">", ">=")
COUNTING = ("count", "any", "all")  # take conditions, where one test may apply to several names
_FUNCTIONS = {"ln": math.log, "exp": math.exp, "sqrt": math.sqrt}


# ---- the pieces of an expression


@dataclass(frozen=True, slots=True)
class Val:
    """A value written out: a number, true or false, or quoted text."""

    value: Value
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Word:
    """A bare word: a variable where there is one of that name, otherwise a level."""

    name: str
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Operation:
    """A deterministic operation on other expressions, such as ``+``, ``if`` or ``count``."""

    kind: str
    arguments: tuple[Node, ...]
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Draw:
    """A randomised operation.

    Attributes:
        kind: The mechanism's name, or ``choose``.
        arguments: What it reads.
        labels: The candidates, for mechanisms that choose between some; empty otherwise.
        parameters: Numbers and words by name; for ``choose``, the weights are ``weight 0``, ``weight 1``, …
        at: Where it stands.
    """

    kind: str
    arguments: tuple[Node, ...]
    labels: tuple[Value, ...]
    parameters: tuple[tuple[str, float | str], ...]
    at: int = field(compare=False)


Node: TypeAlias = "Val | Word | Operation | Draw"


def words(node: Node) -> Iterator[Word]:
    """Yield every bare word of an expression, from left to right."""
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, Word):
            yield current
        elif not isinstance(current, Val):
            stack += reversed(current.arguments)


# ---- the pieces of a definition


@dataclass(frozen=True, slots=True)
class Entry:
    """One ``value: probability`` of a law."""

    value: Value
    weight: float
    at: int


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a conditional table; None stands for any value."""

    pattern: tuple[Value | None, ...]
    entries: tuple[Entry, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Exogenous:
    """``R1, R2 ~ (a, b): 0.5, …``."""

    names: tuple[str, ...]
    entries: tuple[Entry, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Conditional:
    """``X | A, B ~`` followed by rows."""

    name: str
    parents: tuple[Word, ...]
    rows: tuple[Row, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Assign:
    """``X := expression``."""

    name: str
    expression: Node
    at: int


Statement: TypeAlias = "Exogenous | Conditional | Assign"


# ---- reading them


def read_statements(source: NamedText) -> tuple[list[Statement], Parser]:
    """Return the definitions of a text, and the reader, which knows the levels it met."""
    parser = Parser(source)
    found: list[Statement] = []
    while parser.peek().kind != "end":
        found += parser.statement()
    return found, parser


def read_expression(source: NamedText) -> tuple[Node, Parser]:
    """Return the expression that a text consists of, and the reader, which knows the levels it met."""
    parser = Parser(source)
    node = parser.expression()
    parser.end_of_line()
    if parser.peek().kind != "end":
        raise parser.error("the expression ended before this line.", parser.peek())
    return node, parser


class Parser:
    """Reads a text by recursive descent: statements, expressions from the loosest binding to the tightest, and values.

    It knows nothing of ranges. Nesting is limited, so that no text can exhaust the stack, and so is the number of names
    that families stand for, so that none can exhaust the machine.

    Attributes:
        source: The text.
        tokens: Its tokens; the last one is the end.
        position: The token to be read next.
        levels: Every level met so far, so that a bare word can be told from a misspelt variable.
        bare: Levels that stand in a law without quotes, with their place.
        indices: Values of the family indices that are in force.
    """

    def __init__(self, source: NamedText) -> None:
        self.source = source
        self.tokens = tokens(source)
        self.position = 0
        self.levels: set[str] = set()
        self.bare: dict[str, int] = {}
        self.indices: dict[str, int] = {}
        self._depth = 0
        self._names = 0
        self._work = 0

    # -- statements ----------------------------------------------------------------------------------------------------

    def statement(self) -> list[Statement]:
        """Read one definition; a family gives one for each member."""
        name = self.peek()
        if name.kind != "name":
            raise self.error("a definition starts with a name, as in 'X := …' or 'X ~ level: 0.5, …'.", name)
        if not self.at("[", ahead=1):
            return [self._definition(self._names_on_the_left())]
        self._defined()
        self.take()
        index = None
        if self.at("in", ahead=1):
            index = self.take().text
            self.take()
            if index in WORDS or not index.isidentifier():
                raise self.error("the index of a family is a name, as in 'D[i in 1..9] := R[i]'.", name)
        first, last = self.bounds(name)
        found, start = [], self.position
        for number in range(first, last + 1):
            self.position = start
            if index is not None:
                self.indices = {index: number}
            found.append(self._definition([Token("name", f"{name.text}{number}", name.at)]))
        self.indices = {}
        return found

    def _names_on_the_left(self) -> list[Token]:
        names = [self._defined()]
        while self.skip(","):
            name = self._defined()
            if name.text in [other.text for other in names]:
                raise self.error(f"{name.text!r} is named twice.", name)
            names.append(name)
        return names

    def _defined(self) -> Token:
        token = self.take()
        if token.kind != "name":
            raise self.error(f"expected the name of a variable; found {_what(token)}.", token)
        if token.text in WORDS:
            raise self.error(f"{token.text!r} is a word of the language; choose another name.", token)
        return token

    def _definition(self, names: list[Token]) -> Statement:
        name = names[0]
        if self.skip("~"):
            return self._exogenous(names)
        if len(names) > 1:
            raise self.error(
                f"after several names comes '~' and their joint law; found {_what(self.peek())}.", self.peek()
            )
        if self.skip(":="):
            node = self.expression()
            self.end_of_line()
            return Assign(name.text, node, name.at)
        if self.skip("|"):
            return self._conditional(name)
        hint = " Did you mean ':='?" if self.at("=", "==", ":") else ""
        raise self.error(f"after {name.text!r} comes ':=', '~' or '|'; found {_what(self.peek())}.{hint}", self.peek())

    def _exogenous(self, names: list[Token]) -> Exogenous:
        entries = self._entries()
        self.end_of_line()
        for entry in entries:
            if len(names) > 1 and (not isinstance(entry.value, tuple) or len(entry.value) != len(names)):
                raise self.source.mark(
                    f"a joint law of {len(names)} variables needs {len(names)} values, as in (a, b): 0.5.", entry.at
                )
        return Exogenous(tuple(name.text for name in names), entries, names[0].at)

    def _conditional(self, name: Token) -> Conditional:
        parents = self.references()
        while self.skip(","):
            parents += self.references()
        self.expect("~", "then come the rows of the table")
        rows = [self._row(len(parents))]
        while self._at_row():
            rows.append(self._row(len(parents)))
        return Conditional(name.text, tuple(parents), tuple(rows), name.at)

    def _at_row(self) -> bool:
        """Look ahead: a row has '->' where a definition has '~', ':=' or '|'."""
        signs = (token.text for token in self._line() if _among(token, ("->", "~", ":=", "|")))
        return next(signs, None) == "->"

    def _row(self, parents: int) -> Row:
        start = self.peek()
        pattern = [self._pattern()]
        while self.skip(","):
            pattern.append(self._pattern())
        if len(pattern) != parents:
            raise self.error(f"this row has {len(pattern)} values for {parents} parents.", start)
        self.expect("->", "a row reads: parents' values -> value: probability, …")
        entries = self._entries()
        self.end_of_line()
        return Row(tuple(pattern), entries, start.at)

    def _pattern(self) -> Value | None:
        return None if self.skip("_") else self.level()

    def _entries(self) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        seen: set[Value] = set()
        while True:
            token = self.peek()
            value = self.level()
            self.expect(":", "a law reads: value: probability, …")
            weight = self.constant()
            if not 0 <= weight <= 1:
                raise self.error(f"a probability lies between 0 and 1; got {weight:g}.", token)
            if value in seen:
                raise self.error("this value already has a probability (true counts as 1, false as 0).", token)
            seen.add(value)
            entries.append(Entry(value, weight, token.at))
            if not self.skip(","):
                return tuple(entries)

    # -- expressions ---------------------------------------------------------------------------------------------------

    def expression(self) -> Node:
        """Read ``a if test else b``, or anything that binds tighter."""
        with self.nested():
            node = self._either()
            if not self.at("if"):
                return node
            sign = self.take()
            test = self._either()
            self.expect("else", "every 'if' needs one")
            return Operation("if", (test, node, self.expression()), sign.at)

    def _either(self) -> Node:
        return self._joined("or", lambda: self._joined("and", self._negation))

    def _joined(self, word: str, operand: Callable[[], Node]) -> Node:
        """Read operands joined by an associative word as one operation of many arguments."""
        arguments, first = [operand()], self.peek()
        while self.skip(word):
            arguments.append(operand())
        return arguments[0] if len(arguments) == 1 else Operation(word, tuple(arguments), first.at)

    def _negation(self) -> Node:
        first, negative = self.peek(), False
        while self.skip("not"):
            negative = not negative
        node = self._comparison()
        return Operation("not", (node,), first.at) if negative else node

    def _comparison(self) -> Node:
        left = self._total()
        if not self.at(*COMPARISONS):
            return left
        sign = self.take()
        node = self._compared(left, sign)
        if self.at(*COMPARISONS):
            raise self.error("compare two things at a time, as in 'a < b and b < c'.", self.peek())
        return node

    def _compared(self, left: Node, sign: Token) -> Node:
        return Operation("=" if sign.text == "==" else sign.text, (left, self._total()), sign.at)

    def _total(self) -> Node:
        arguments, first = [self._product()], self.peek()
        while self.at("+", "-"):
            sign = self.take()
            term = self._product()
            arguments.append(term if sign.text == "+" else _negative(term, sign.at))
        return arguments[0] if len(arguments) == 1 else Operation("+", tuple(arguments), first.at)

    def _product(self) -> Node:
        node, links = self._signed(), 0
        while self.at("*", "//", "%", "/"):
            sign = self.take()
            links += 1
            if sign.text == "/":
                raise self.error("values are whole numbers; write '//' for division rounded down.", sign)
            if links > MAX_NESTING:
                raise self.error(f"more than {MAX_NESTING} factors in a row; give a part a variable of its own.", sign)
            node = Operation(sign.text, (node, self._signed()), sign.at)
        return node

    def _signed(self) -> Node:
        first, negative = self.peek(), False
        while self.at("-", "+"):
            negative ^= self.take().text == "-"
        node = self._primary()
        return _negative(node, first.at) if negative else node

    def _primary(self) -> Node:
        token = self.peek()
        if token.kind == "string":
            return Val(self._remember(self.take().text), token.at)
        if token.kind == "number":
            return Val(self.whole(), token.at)
        if self.at("("):
            return self._brackets()
        if token.kind != "name":
            raise self.error(f"expected a variable, a value or an expression; found {_what(self.peek())}.", token)
        if self.at("(", ahead=1):
            return self._call()
        if token.text in ("true", "True", "false", "False"):
            return Val(self.take().text.lower() == "true", token.at)
        if token.text in self.indices:
            return Val(self.indices[self.take().text], token.at)
        return self.reference()

    def _brackets(self) -> Node:
        start = self.take()
        parts, is_tuple = [self.expression()], False
        while self.skip(","):
            is_tuple = True
            if self.at(")"):
                break
            parts.append(self.expression())
        self.expect(")", "this bracket is not closed")
        return Operation("tuple", tuple(parts), start.at) if is_tuple else parts[0]

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self) -> Node:
        name = self.take()
        self.take()
        if name.text in FUNCTIONS:
            node = self._function(name)
        elif name.text == "choose":
            node = self._choose(name)
        elif name.text in MECHANISMS:
            node = self._mechanism(name)
        else:
            known = (*FUNCTIONS, *MECHANISMS, "choose")
            raise self.error(f"there is no function {name.text!r}.{did_you_mean(name.text, known)}", name)
        self.expect(")", f"the arguments of {name.text} end here")
        return node

    def _function(self, name: Token) -> Node:
        if self.at(")"):
            raise self.error(f"{name.text}(...) needs at least one argument.", name)
        arguments = self._tests() if name.text in COUNTING else self._list()
        if name.text == "abs" and len(arguments) > 1:
            raise self.error("abs(...) takes one argument.", name)
        return Operation(name.text, tuple(arguments), name.at)

    def _list(self) -> list[Node]:
        """Read arguments, where a family stands for all its members."""
        arguments: list[Node] = []
        while True:
            arguments += self.references() if self._at_family() else [self.expression()]
            if not self.skip(","):
                return arguments

    def _tests(self) -> list[Node]:
        """Read conditions; in ``count(A, B, C = pos)`` the test after the last name applies to every name before it."""
        conditions: list[Node] = []
        names: list[Node] = []
        while True:
            start = self.peek()
            if self._at_family():
                names += self.references()
                test = self._compared(names.pop(), self.take()) if self.at(*COMPARISONS) else None
            else:
                test = self.expression()
                if isinstance(test, Word) and start.kind == "name":  # in brackets it is a condition by itself
                    names.append(test)
                    test = None
            if isinstance(test, Operation) and test.kind in COMPARISONS and start.kind == "name":
                conditions += self._applied(test, names)
                names = []
            elif test is not None:
                conditions += [*names, test]
                names = []
            if not self.skip(","):
                return [*conditions, *names]

    def _applied(self, test: Operation, names: list[Node]) -> list[Node]:
        left, right = test.arguments
        if names and not (isinstance(left, Word) and isinstance(right, (Word, Val))):
            raise self.source.mark("one test of several names compares each with one value or variable.", test.at)
        return [*(Operation(test.kind, (name, right), test.at) for name in names), test]

    def _at_family(self) -> bool:
        """Look ahead for ``X[a..b]``."""
        if self.peek().kind != "name" or not self.at("[", ahead=1):
            return False
        signs = (token.text for token in self._line(2) if _among(token, ("]", "..")))
        return next(signs, None) == ".."

    def _choose(self, name: Token) -> Node:
        """Read ``choose(a, b)`` or ``choose(a: 0.3, b: 0.7)``."""
        arguments, weights = [], []
        while True:
            arguments.append(self.expression())
            if self.skip(":"):
                weights.append(self.constant())
            if not self.skip(","):
                break
        if weights and len(weights) != len(arguments):
            raise self.error("give every choice a probability, or none of them.", name)
        weights = weights or [1 / len(arguments)] * len(arguments)
        parameters = tuple((f"weight {position}", weight) for position, weight in enumerate(weights))
        return Draw("choose", tuple(arguments), (), parameters, name.at)

    def _mechanism(self, name: Token) -> Node:
        mechanism = MECHANISMS[name.text]
        arguments: list[Node] = []
        labels: list[Value] = []
        parameters: dict[str, float | str] = {}
        while True:
            if self.peek().text in mechanism.parameters and self.at("=", "==", ahead=1):
                word = self.take()
                self.take()
                if word.text in parameters:
                    raise self.error(f"{word.text!r} is given twice.", word)
                parameters[word.text] = self.take().text if word.text == "noise" else self.constant()
            elif parameters:
                raise self.error(
                    f"after its arguments, {name.text} takes {_listed(mechanism.parameters)}.", self.peek()
                )
            elif mechanism.form == "chance":
                parameters["probability"] = self.constant()
            else:
                if mechanism.form == "candidates" and self._at_label():
                    labels.append(self.level())
                    self.take()
                arguments.append(self.expression())
            if not self.skip(","):
                break
        missing = [word for word in mechanism.required if word not in parameters]
        if missing:
            raise self.error(f"{name.text} needs {missing[0]} = …", name)
        if mechanism.form == "value" and len(arguments) != 1:
            raise self.error(f"{name.text} takes one argument; found {len(arguments)}.", name)
        if mechanism.form == "candidates":
            if not arguments or (labels and len(labels) != len(arguments)):
                raise self.error(
                    f"{name.text} takes candidates with scores, as in {name.text}(a: count(…), b: …).", name
                )
            if len(set(labels)) < len(labels):
                raise self.error("two candidates have the same name.", name)
            labels = labels or list(range(1, len(arguments) + 1))
        kind = name.text.replace("randomized", "randomised")
        return Draw(kind, tuple(arguments), tuple(labels), tuple(parameters.items()), name.at)

    def _at_label(self) -> bool:
        return self.peek().kind in ("name", "number", "string") and self.at(":", ahead=1)

    # -- tokens ------------------------------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> Token:
        """Return a coming token without taking it."""
        return self.tokens[min(self.position + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Return the next token and move past it."""
        token = self.peek()
        self.position = min(self.position + 1, len(self.tokens) - 1)
        self._work += 1
        if self._work > MAX_WORK:
            raise self.error("the families of this text stand for too many definitions; split the model.", token)
        return token

    def at(self, *signs: str, ahead: int = 0) -> bool:
        """Return True if a coming token is one of these signs or words (and not quoted text)."""
        return _among(self.peek(ahead), signs)

    def _line(self, ahead: int = 0) -> Iterator[Token]:
        """Look at what is left of the line, from a coming token on."""
        while (token := self.peek(ahead)).kind not in ("newline", "end"):
            yield token
            ahead += 1

    def skip(self, *signs: str) -> bool:
        """Move past the next token if it is one of these."""
        if self.at(*signs):
            self.take()
            return True
        return False

    def expect(self, sign: str, why: str) -> Token:
        """Return the next token, or raise unless it is ``sign``."""
        if not self.at(sign):
            raise self.error(f"expected {sign!r} ({why}); found {_what(self.peek())}.", self.peek())
        return self.take()

    def error(self, message: str, token: Token) -> ParseError:
        """Return an error that points at a token."""
        return self.source.mark(message, token.at)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Count one level of nesting, or raise if there are too many."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.error(
                f"nested more than {MAX_NESTING} levels deep; give a part of it a variable of its own.", self.peek()
            )
        try:
            yield
        finally:
            self._depth -= 1

    def end_of_line(self) -> None:
        """Move past the end of a definition, or raise if there is more."""
        if self.peek().kind not in ("newline", "end"):
            raise self.error(f"expected the end of the line; found {_what(self.peek())}.", self.peek())
        self.take()

    # -- numbers -----------------------------------------------------------------------------------------------------

    def constant(self) -> float:
        """Read a number such as ``0.1``, ``1/3``, ``ln(2)`` or ``2 * exp(-1)``."""
        start = self.peek()
        try:
            value = self._constant_sum()
        except ParseError:
            raise
        except (ArithmeticError, ValueError):  # 1/0, exp(1000), ln(0)
            raise self.error("this number is not defined.", start) from None
        if not math.isfinite(value):
            raise self.error("this number is too large.", start)
        return value

    def _constant_sum(self) -> float:
        with self.nested():
            total = self._constant_product()
            while self.at("+", "-"):
                total += self._constant_product() if self.take().text == "+" else -self._constant_product()
            return total

    def _constant_product(self) -> float:
        value = self._constant_number()
        while self.at("*", "/"):
            value = value * self._constant_number() if self.take().text == "*" else value / self._constant_number()
        return value

    def _constant_number(self) -> float:
        negative = False
        while self.at("-", "+"):
            negative ^= self.take().text == "-"
        token = self.take()
        if token.kind == "number":
            value = float(token.text)
        elif token.text == "(" and token.kind == "sign":
            value = self._constant_sum()
            self.expect(")", "this bracket is not closed")
        elif token.kind == "name" and token.text in _FUNCTIONS:
            self.expect("(", f"{token.text} takes a number in brackets")
            value = _FUNCTIONS[token.text](self._constant_sum())
            self.expect(")", "this bracket is not closed")
        elif token.kind == "name" and token.text in self.indices:
            value = float(self.indices[token.text])
        else:
            raise self.error(f"expected a number, such as 0.1, 1/3 or ln(2); found {_what(token)}.", token)
        return -value if negative else value

    def whole(self) -> int:
        """Read a whole number."""
        token = self.take()
        if not token.text.isdecimal() or int(token.text) > MAX_WHOLE:
            raise self.error("values are whole numbers of at most 2^53, text, true or false.", token)
        return int(token.text)

    # -- levels ------------------------------------------------------------------------------------------------------

    def level(self) -> Value:
        """Read a value as it stands in a law: a word, a whole number, quoted text, true, false, or a tuple of these."""
        token = self.peek()
        if token.kind == "string":
            return self._remember(self.take().text)
        if token.kind == "number":
            return self.whole()
        if self.at("-") and self.peek(1).kind == "number":
            self.take()
            return -self.whole()
        if self.at("("):
            return self._tuple_level()
        if token.kind != "name":
            raise self.error(f"expected a value; found {_what(token)}.", token)
        if token.text in ("true", "True", "false", "False"):
            return self.take().text.lower() == "true"
        if token.text in WORDS:
            raise self.error(f'{token.text!r} is a word of the language; as a value, write "{token.text}".', token)
        self.bare.setdefault(token.text, token.at)
        return self._remember(self.take().text)

    def _tuple_level(self) -> Value:
        with self.nested():
            self.take()
            parts = [self.level()]
            while self.skip(",") and not self.at(")"):
                parts.append(self.level())
            self.expect(")", "this bracket is not closed")
            return tuple(parts)

    def _remember(self, level: str) -> str:
        self.levels.add(level)
        return level

    # -- names of variables ------------------------------------------------------------------------------------------

    def references(self) -> list[Word]:
        """Read ``X``, ``X[3]`` or the family ``X[1..9]``, which stands for X1, …, X9."""
        token = self.take()
        if token.kind != "name" or token.text in WORDS:
            raise self.error(f"expected the name of a variable; found {_what(token)}.", token)
        if not self.at("["):
            return [Word(token.text, token.at)]
        self.take()
        first, last = self.bounds(token)
        return [Word(f"{token.text}{number}", token.at) for number in range(first, last + 1)]

    def reference(self) -> Word:
        """Read the name of one variable."""
        token = self.peek()
        found = self.references()
        if len(found) > 1:
            raise self.error("a family can only stand in a list, such as count(D[1..9] = pos).", token)
        return found[0]

    def bounds(self, token: Token) -> tuple[int, int]:
        """Read ``3]`` or ``1..9]`` after the opening bracket of a family."""
        first = last = self._index()
        if self.skip(".."):
            last = self._index()
        self.expect("]", "this bracket is not closed")
        if first > last:
            raise self.error(f"the family {token.text}[{first}..{last}] is empty.", token)
        self._names += last - first + 1
        if last - first >= MAX_FAMILY or self._names > MAX_NAMES:
            raise self.error(f"families are limited to {MAX_FAMILY:,} names each and {MAX_NAMES:,} in one text.", token)
        return first, last

    def _index(self) -> int:
        value = self._index_term()
        while self.at("+", "-"):
            value += self._index_term() if self.take().text == "+" else -self._index_term()
        if value < 0:
            raise self.error("an index cannot be negative.", self.peek())
        return value

    def _index_term(self) -> int:
        token = self.peek()
        if token.kind == "name":
            if token.text not in self.indices:
                known = (
                    f" Known here: {', '.join(self.indices)}."
                    if self.indices
                    else " Bind it as in D[i in 1..9] := R[i]."
                )
                raise self.error(f"{token.text!r} is not an index.{known}", token)
            return self.indices[self.take().text]
        return self.whole()


def _among(token: Token, signs: Collection[str]) -> bool:
    """Return True if a token is one of these signs or words, and not quoted text."""
    return token.kind != "string" and token.text in signs


def _what(token: Token) -> str:
    """Say what a token is, for a message."""
    return {"newline": "the end of the line", "end": "the end of the text"}.get(token.kind, repr(token.text))


def _negative(node: Node, at: int) -> Node:
    if isinstance(node, Val) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return Val(-node.value, at)
    return Operation("neg", (node,), at)


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words) or "nothing"


# ---- words, numbers and signs

_TOKEN = re.compile(
    r"""(?P<skip>(?:[^\S\n]+|\#[^\n]*|\\\n)+)
      | (?P<newline>\n)
      | (?P<name>[^\W\d]\w*)
      | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
      | (?P<string>"(?:[^"\\\n]|\\[^\n])*"|'[^'\n]*')
      | (?P<sign>:=|->|\.\.|==|!=|<=|>=|//|[~|:,()\[\]=<>+\-*/%])
    """,
    re.VERBOSE,
)
# After one of these a line cannot be complete, so the definition goes on in the next line.
_SIGNS = (":=", "->", "..", "==", "!=", "<=", ">=", "//", "~", "|", ":", ",", "=", "<", ">", "+", "-", "*", "/", "%")
_UNFINISHED = frozenset((*_SIGNS, "and", "or", "not", "if", "else", "in"))


def tokens(source: NamedText) -> list[Token]:
    """Return the tokens of the text, strings without quotes.

    Line ends inside brackets, or where a line cannot be complete, are left out.
    """
    length = len(source.text)
    if length > MAX_TEXT:
        raise ParseError(f"the text has {length:,} characters; the limit is {MAX_TEXT:,}.", source=source.name)

    def odd(at: int) -> NoReturn:
        raise source.mark(_stray(source.text[at]), at)

    found: list[Token] = []
    depth = 0
    for token in source.tokens(_TOKEN, odd):
        if token.kind == "newline":
            if depth == 0 and found and found[-1].kind != "newline" and not _unfinished(found[-1]):
                found.append(token)
            continue
        if token.kind == "sign":
            depth = max(0, depth + (token.text in "([") - (token.text in ")]"))
        found.append(_read(source, token))
    if found and found[-1].kind != "newline":
        found.append(Token("newline", "\n", length))
    found.append(Token("end", "", length))
    return found


def _read(source: NamedText, token: Token) -> Token:
    kind, text, at = token
    if kind == "number" and len(text) > _MAX_NUMBER:
        raise source.mark(f"this number has {len(text)} characters; the limit is {_MAX_NUMBER}.", at)
    if kind != "string":
        return token
    try:
        text = json.loads(text) if text[0] == '"' else text[1:-1]
        text.encode("utf-8")
    except ValueError:
        raise source.mark("this text has an escape that is not one of JSON's (\\\" \\\\ \\n \\u…).", at) from None
    return Token(kind, text, at)


def _unfinished(token: Token) -> bool:
    return token.kind in ("name", "sign") and token.text in _UNFINISHED


def _stray(character: str) -> str:
    if character in "\"'":
        return "this quoted text is not closed before the end of the line."
    hints = {"≤": "<=", "≥": ">=", "≠": "!=", "&": "and", "!": "not", "^": "!=", ";": "a new line", "{": "(", "}": ")"}
    hint = f" Write {hints[character]} instead." if character in hints else ""
    return f"unexpected character {character!r}.{hint}"
