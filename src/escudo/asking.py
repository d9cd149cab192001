"""How a private question is asked: the one place that charges, marks what fails, and says what an answer promises.

A **question** is a value made from public facts. It prepares itself for a schema, for the neighbours between which it
must not tell, and for a budget; what it *prepares* knows its plan, all that it may spend, before a row is read, and
answers from a table and a purse. :func:`ask` does the rest, always in the same order:

1. prepare, from public facts alone; an argument that is out of range is an error here, and nothing was spent;
2. judge the plan's δ by the number of records, as far as that is public;
3. charge the table's account for the whole plan, in one spend;
4. run: read rows through the table, draw noise through the purse, which pays what the plan shows and nothing else;
5. if that fails, or what comes after it in the block of :func:`asking`, such as writing a release: the spend stays, and
   is marked failed, without the error's words.

So a new private question is one class with ``prepare``, and one with ``plan`` and ``run``.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypedDict, TypeVar, Unpack

from escudo.errors import InputError
from escudo.mechanisms import Purse, Seed, one_stream, publishable
from escudo.privacy import Account, Budget, ComposedEvent, Neighbours, Plan, Relation, charging, guarantee_of, plannable
from escudo.table import LinkedSchema, PrivateTable, PrivateTables, Schema

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "AskOptions",
    "Described",
    "Prepared",
    "Question",
    "ask",
    "asking",
    "expecting",
    "linked",
    "paying",
    "planning",
    "run",
    "running",
    "verb",
]

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Prepared(Protocol[T_co]):
    """A question that knows what it will spend, before a row is read.

    One that keeps a checkpoint also has a method ``paying(account, plan, stream, *, for_release, purpose)`` in place of
    :func:`escudo.privacy.charging`: what was paid before it was stopped is not paid again. One that can tell how good
    its answer will be has a method ``forecast(rows)``, which the plan shows; rows are None where they are not public.
    One that knows how often it reads the rows says so as ``passes``.
    """

    @property
    def schema(self) -> Schema:
        """The columns it was prepared for."""
        ...

    @property
    def plan(self) -> Plan:
        """All that ``run`` may spend, stated at the δ asked for."""
        ...

    def run(self, table: PrivateTable, purse: Purse) -> T_co:
        """Read the table, draw from the purse what the plan shows, and answer; ``purse.guarantee`` is the promise."""
        ...


class Question(Protocol[T_co]):
    """Something to be asked of a private table: a value, made from public facts."""

    def prepare(self, schema: Schema, neighbours: Neighbours, budget: Budget) -> Prepared[T_co]:
        """Check every public fact and choose what to measure and how loudly; nothing is read or spent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A table of which only public facts are known: enough for a plan."""

    schema: Schema | LinkedSchema
    neighbours: Neighbours

    @property
    def relation(self) -> Relation:
        """Which tables are neighbours."""
        return self.neighbours.relation

    def binned_as(self, schema: Schema) -> Described:
        """Return the same with the bins that a release chose, where its own schema leaves them to one."""
        return self if isinstance(self.schema, LinkedSchema) else replace(self, schema=self.schema.binned_as(schema))


class _Planned(Exception):
    def __init__(self, plan: Plan):
        self.plan = plan


_PLANNING: ContextVar[bool] = ContextVar("planning", default=False)


def planning() -> bool:
    """Return whether a verb is only asked for its plan: then nothing is read or spent."""
    return _PLANNING.get()


def linked(operation: Callable[P, T]) -> Callable[P, T]:
    """Say of a verb, below ``@verb``, that it asks linked tables too."""
    operation.linked = True  # type: ignore[attr-defined]
    return operation


def verb(operation: Callable[P, T]) -> Callable[P, T]:
    """Make a function that asks one question of a private table into a verb: something that can be planned.

    ``escudo.plan(verb, table, ...)`` and ``verb.plan(table, ...)`` call the function and stop where it would ask; they
    also take a :class:`~escudo.table.Schema` in place of the table, with ``relation``, ``rows`` and ``people`` beside.

    What is public about a table is said once, where it is made. That a verb takes ``relation`` and ``public_rows`` (or
    ``rows``) too is deprecated, and ends with version 0.3.
    """
    signature = inspect.signature(operation)
    position = list(signature.parameters).index("table") if "table" in signature.parameters else None

    @wraps(operation)
    def asked(*args: Any, **kwargs: Any) -> Any:
        if "table" in kwargs:
            kwargs["table"] = _told(operation, kwargs["table"], kwargs)
        elif position is not None and position < len(args):
            args = (*args[:position], _told(operation, args[position], kwargs), *args[position + 1 :])
        return operation(*args, **kwargs)

    def plan(*args: Any, **kwargs: Any) -> Plan:
        token = _PLANNING.set(True)
        try:
            asked(*args, **kwargs)
        except _Planned as planned:
            return planned.plan
        finally:
            _PLANNING.reset(token)
        raise AssertionError(f"{operation.__qualname__} asks nothing")

    return plannable(plan)(asked)


def _told(operation: Callable[..., Any], table: object, given: dict[str, Any]) -> object:
    """Return the table with what was said about it in a call, which is taken out of the arguments."""
    if isinstance(table, PrivateTables | LinkedSchema) and not getattr(operation, "linked", False):
        raise InputError(
            f"{operation.__name__} asks one table, and takes no linked ones; ask it of one of them as a PrivateTable."
        )
    if not isinstance(table, PrivateTable | PrivateTables | Schema | LinkedSchema):
        raise InputError(f"{operation.__name__} asks a PrivateTable; got {type(table).__name__}.")
    known = inspect.signature(operation).parameters
    old = {
        name: given.pop(name)
        for name in ("relation", "public_rows", "rows", "people")
        if name in given and name not in known
    }
    if "public_rows" in old:
        old["rows"] = old.pop("public_rows")
    said = {name: value for name, value in old.items() if value is not None}
    if isinstance(table, Schema | LinkedSchema):
        if not planning():
            raise InputError(
                f"{operation.__name__} asks a PrivateTable, and got its schema only; the plan of it takes one."
            )
        return Described(schema=table, neighbours=table.neighbours(**said))
    if not said:
        return table
    if not planning():
        warnings.warn(
            f"{' and '.join(said)} of {operation.__name__}() will end with version 0.3: say it once, where the table "
            "is made: PrivateTable(..., " + ", ".join(f"{name}=..." for name in said) + ").",
            DeprecationWarning,
            stacklevel=3,
        )
    return table.under(**said)


class AskOptions(TypedDict, total=False):
    """How a question is asked, whichever it is; all of it may be left out.

    Attributes:
        purpose: Why, for the account; the plan's name by default.
        accept_large_delta: Whether a δ that is not below one over the number of rows or people was meant; it is
            refused otherwise, by a public or stated number (``Plan.judged``).
        seed: Repeatable noise for tests and demonstrations; marks everything not for release.
    """

    purpose: str
    accept_large_delta: bool
    seed: Seed


def ask(question: Question[T], table: PrivateTable, budget: Budget, **how: Unpack[AskOptions]) -> T:
    """Ask a question of a private table, and return its answer.

    Args:
        question: The question.
        table: The private table; its account is charged once, for the whole plan, before any noise is drawn.
        budget: What it may cost.
        how: The purpose, whether a large δ was meant, and a seed.

    Raises:
        InputError: If a public argument is out of range; nothing was spent.
        RefusedError: If δ is too large for the table; nothing was spent.
        BudgetExceededError: If the account does not allow the plan; nothing was spent.

    **Guarantee.** The accountant's total of the plan's events, between the table's neighbours.
    """
    with asking(question, table, budget, **how) as answer:
        return answer


@contextmanager
def asking(question: Question[T], table: PrivateTable, budget: Budget, **how: Unpack[AskOptions]) -> Iterator[T]:
    """Like :func:`ask`, for a block that is the rest of the release: if it fails, the spend is marked failed."""
    with running(question.prepare(table.schema, table.neighbours, budget), table, **how) as answer:
        yield answer


def run(prepared: Prepared[T], table: PrivateTable, **how: Unpack[AskOptions]) -> T:
    """Like :func:`ask`, for what was prepared before."""
    with running(prepared, table, **how) as answer:
        return answer


@contextmanager
def running(
    prepared: Prepared[T],
    table: PrivateTable,
    *,
    purpose: str = "",
    accept_large_delta: bool = False,
    seed: Seed = None,
) -> Iterator[T]:
    """Like :func:`asking`, for what was prepared before.

    Raises:
        InputError: If it was prepared for another schema, too; nothing was spent.
    """
    if prepared.schema != table.schema:
        raise InputError("What to measure was prepared for another schema than the table's. Nothing was spent.")
    plan = prepared.plan
    if plan.stated_delta > 0:  # records are counted only where that matters
        plan = plan.judged(table.neighbours, accept_large_delta=accept_large_delta)
    if planning():
        raise _Planned(expecting(prepared, plan, table.neighbours))
    stream = one_stream(seed)
    stated = table.schema.neighbours(relation=table.relation).stated
    promise = guarantee_of(
        plan.event or ComposedEvent(events=(), **stated),
        delta=plan.stated_delta,
        max_rows_per_person=stated["max_rows_per_person"],
        for_release=publishable(seed),
    )
    terms: dict[str, Any] = {"for_release": promise.for_release, "purpose": purpose or plan.name}
    with paying(prepared, table.account, plan, stream, **terms) as account:
        yield prepared.run(table, Purse(account, stream, plan=plan, guarantee=promise))


def expecting(prepared: Prepared[Any], plan: Plan, neighbours: Neighbours) -> Plan:
    """Return a plan together with what is known of its answer beforehand: how good it will be, how often rows are read.

    Args:
        prepared: What was prepared; it need not know either.
        plan: Its plan.
        neighbours: Between which tables it promises, and how many rows they have where that is public.
    """
    foretell = getattr(prepared, "forecast", None)
    return plan.expecting(None if foretell is None else foretell(neighbours.rows), getattr(prepared, "passes", None))


def paying(
    prepared: Prepared[Any], account: Account, plan: Plan, stream: np.random.Generator | None, **terms: Any
) -> AbstractContextManager[Account]:
    """Charge a plan in the way of what was prepared, which may go on after a stop; in one spend if it has none."""
    own = getattr(prepared, "paying", None)
    payment: AbstractContextManager[Account]
    payment = charging(account, plan, **terms) if own is None else own(account, plan, stream, **terms)
    return payment
