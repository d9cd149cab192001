"""Every error escudo raises on purpose, as one small tree, and the warning that is none.

Each class carries the exit code the command line ends with, and each message says what is wrong, which argument or
column, and what to do next. No message ever contains a value read from a private table.
"""

from __future__ import annotations

__all__ = [
    "BudgetExceededError",
    "EngineError",
    "EscudoError",
    "GraphError",
    "InputError",
    "LedgerCorruptError",
    "LedgerError",
    "LedgerWarning",
    "NotIdentifiableError",
    "NotInPlanError",
    "ParseError",
    "RefusedError",
    "SchemaError",
    "UnsupportedEventError",
    "ViolationError",
    "ZeroProbabilityError",
]


class EscudoError(Exception):
    """Base of all errors escudo raises on purpose."""

    exit_code = 1


class InputError(EscudoError, ValueError):
    """An argument, option or file is not usable; nothing was spent or written."""

    exit_code = 2


class ParseError(InputError):
    """A text could not be read: names the source, line and column where reading stopped."""

    def __init__(self, message: str, *, source: str = "text", line: int | None = None, column: int | None = None):
        self.source, self.line, self.column = source, line, column
        place = source
        if line is not None:
            place += f", line {line}" + (f", column {column}" if column is not None else "")
        super().__init__(f"{place}: {message}")


class SchemaError(InputError):
    """A schema is inconsistent, or an argument names a column or level the schema does not have."""


class GraphError(InputError):
    """A graph is not usable: a cycle, an unknown name, an edge both required and forbidden."""


class ZeroProbabilityError(InputError):
    """Conditioning on an event of probability zero, which has no answer (an intervention would)."""


class NotIdentifiableError(InputError):
    """The causal question has no answer from these variables; names the latent or the open path."""


class UnsupportedEventError(InputError):
    """An accountant or file met a privacy event, or a part of one, that it cannot interpret."""


class EngineError(EscudoError):
    """The engine or database that holds the table failed; its own message is withheld, as it may show values.

    What was charged before stays charged.
    """

    exit_code = 2


class RefusedError(EscudoError):
    """Refused for safety, such as a release from an unconfirmed schema; nothing was spent."""

    exit_code = 3


class NotInPlanError(RefusedError):
    """A step tried to spend something the budget tree did not show; nothing was spent."""


class BudgetExceededError(EscudoError):
    """The account does not allow this spend; nothing was changed.

    Attributes:
        dataset: The account's name.
        requested: Epsilon that the refused spend alone would cost at the account's delta.
        spent: Epsilon of all spends so far, at the account's delta, had their amounts been settled beforehand.
        left: The largest epsilon of a pure spend that fits.
        cap: The account's epsilon.
    """

    exit_code = 4

    def __init__(self, message: str, *, dataset: str, requested: float, spent: float, left: float, cap: float):
        self.dataset, self.requested, self.spent, self.left, self.cap = dataset, requested, spent, left, cap
        super().__init__(message)


class LedgerError(EscudoError):
    """The ledger cannot be opened, read or written (missing, read-only, full disk); nothing was released."""

    exit_code = 2


class ViolationError(EscudoError):
    """A check found what it looks for: a broken promise, a tampered record."""

    exit_code = 5


class LedgerCorruptError(ViolationError, LedgerError):
    """The ledger's chain of hashes is broken: a row was edited, removed or reordered, or the file is damaged."""

    exit_code = 5


class LedgerWarning(UserWarning):
    """A ledger can be used, but what it promises rests on less than it should; says on what, and what to do."""
