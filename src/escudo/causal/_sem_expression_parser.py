"""A recursive-descent reader for the expressions of the text format, from the loosest binding to the tightest."""

from __future__ import annotations

from collections.abc import Callable

from escudo._validate import did_you_mean
from escudo.causal._sem_cursor import MAX_NESTING, Cursor, what
from escudo.causal._sem_lexer import FUNCTIONS, Token
from escudo.causal._sem_mechanisms import MECHANISMS
from escudo.causal._sem_syntax import Draw, Node, Operation, Val, Word
from escudo.causal._sem_values import Value

__all__ = ["COMPARISONS", "COUNTING", "ExpressionParser"]

COMPARISONS = ("=", "==", "!=", "<", "<=", ">", ">=")
COUNTING = ("count", "any", "all")  # take conditions, where one test may apply to several names


class ExpressionParser(Cursor):
    """Reads one expression; nesting is limited, so that no text can exhaust the stack."""

    def expression(self) -> Node:
        """Read ``a if test else b``, or anything that binds tighter."""
        with self.nested():
            node = self._either()
            if not self.at("if"):
                return node
            sign = self.take()
            test = self._either()
            self.expect("else", "every 'if' needs one")
            return Operation("if", (test, node, self.expression()), sign.offset)

    def _either(self) -> Node:
        return self._joined("or", lambda: self._joined("and", self._negation))

    def _joined(self, word: str, operand: Callable[[], Node]) -> Node:
        """Read operands joined by an associative word as one operation of many arguments."""
        arguments, first = [operand()], self.peek()
        while self.skip(word):
            arguments.append(operand())
        return arguments[0] if len(arguments) == 1 else Operation(word, tuple(arguments), first.offset)

    def _negation(self) -> Node:
        first, negative = self.peek(), False
        while self.skip("not"):
            negative = not negative
        node = self._comparison()
        return Operation("not", (node,), first.offset) if negative else node

    def _comparison(self) -> Node:
        left = self._total()
        if not self.at(*COMPARISONS):
            return left
        sign = self.take()
        node = self._compared(left, sign)
        if self.at(*COMPARISONS):
            raise self.error(self.peek(), "compare two things at a time, as in 'a < b and b < c'.")
        return node

    def _compared(self, left: Node, sign: Token) -> Node:
        return Operation("=" if sign.text == "==" else sign.text, (left, self._total()), sign.offset)

    def _total(self) -> Node:
        arguments, first = [self._product()], self.peek()
        while self.at("+", "-"):
            sign = self.take()
            term = self._product()
            arguments.append(term if sign.text == "+" else _negative(term, sign.offset))
        return arguments[0] if len(arguments) == 1 else Operation("+", tuple(arguments), first.offset)

    def _product(self) -> Node:
        node, links = self._signed(), 0
        while self.at("*", "//", "%", "/"):
            sign = self.take()
            links += 1
            if sign.text == "/":
                raise self.error(sign, "values are whole numbers; write '//' for division rounded down.")
            if links > MAX_NESTING:
                raise self.error(sign, f"more than {MAX_NESTING} factors in a row; give a part a variable of its own.")
            node = Operation(sign.text, (node, self._signed()), sign.offset)
        return node

    def _signed(self) -> Node:
        first, negative = self.peek(), False
        while self.at("-", "+"):
            negative ^= self.take().text == "-"
        node = self._primary()
        return _negative(node, first.offset) if negative else node

    def _primary(self) -> Node:
        token = self.peek()
        if token.kind == "string":
            return Val(self._remember(self.take().text), token.offset)
        if token.kind == "number":
            return Val(self.whole(), token.offset)
        if self.at("("):
            return self._brackets()
        if token.kind != "name":
            raise self.error(token, f"expected a variable, a value or an expression; found {what(self.peek())}.")
        if self.at("(", ahead=1):
            return self._call()
        if token.text in ("true", "True", "false", "False"):
            return Val(self.take().text.lower() == "true", token.offset)
        if token.text in self.indices:
            return Val(self.indices[self.take().text], token.offset)
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
        return Operation("tuple", tuple(parts), start.offset) if is_tuple else parts[0]

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
            raise self.error(name, f"there is no function {name.text!r}.{did_you_mean(name.text, known)}")
        self.expect(")", f"the arguments of {name.text} end here")
        return node

    def _function(self, name: Token) -> Node:
        if self.at(")"):
            raise self.error(name, f"{name.text}(...) needs at least one argument.")
        arguments = self._tests() if name.text in COUNTING else self._list()
        if name.text == "abs" and len(arguments) > 1:
            raise self.error(name, "abs(...) takes one argument.")
        return Operation(name.text, tuple(arguments), name.offset)

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
            raise self.source.error(test.offset, "one test of several names compares each with one value or variable.")
        return [*(Operation(test.kind, (name, right), test.offset) for name in names), test]

    def _at_family(self) -> bool:
        """Look ahead for ``X[a..b]``."""
        if self.peek().kind != "name" or not self.at("[", ahead=1):
            return False
        ahead = 2
        while not self.at("]", ahead=ahead) and self.peek(ahead).kind not in ("newline", "end"):
            if self.at("..", ahead=ahead):
                return True
            ahead += 1
        return False

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
            raise self.error(name, "give every choice a probability, or none of them.")
        weights = weights or [1 / len(arguments)] * len(arguments)
        parameters = tuple((f"weight {position}", weight) for position, weight in enumerate(weights))
        return Draw("choose", tuple(arguments), (), parameters, name.offset)

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
                    raise self.error(word, f"{word.text!r} is given twice.")
                parameters[word.text] = self.take().text if word.text == "noise" else self.constant()
            elif parameters:
                raise self.error(
                    self.peek(), f"after its arguments, {name.text} takes {_listed(mechanism.parameters)}."
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
            raise self.error(name, f"{name.text} needs {missing[0]} = …")
        if mechanism.form == "value" and len(arguments) != 1:
            raise self.error(name, f"{name.text} takes one argument; found {len(arguments)}.")
        if mechanism.form == "candidates":
            if not arguments or (labels and len(labels) != len(arguments)):
                raise self.error(
                    name, f"{name.text} takes candidates with scores, as in {name.text}(a: count(…), b: …)."
                )
            if len(set(labels)) < len(labels):
                raise self.error(name, "two candidates have the same name.")
            labels = labels or list(range(1, len(arguments) + 1))
        kind = name.text.replace("randomized", "randomised")
        return Draw(kind, tuple(arguments), tuple(labels), tuple(parameters.items()), name.offset)

    def _at_label(self) -> bool:
        return self.peek().kind in ("name", "number", "string") and self.at(":", ahead=1)


def _negative(node: Node, offset: int) -> Node:
    if isinstance(node, Val) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return Val(-node.value, offset)
    return Operation("neg", (node,), offset)


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words) or "nothing"
