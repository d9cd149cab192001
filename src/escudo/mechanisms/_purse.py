"""The one hand that draws noise, with what pays for it, and the one order in which it may act: check, charge, draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from escudo._card import card
from escudo._validate import positive
from escudo.errors import InputError
from escudo.mechanisms._noise import (
    Integers,
    NoiseSource,
    SecureNoise,
    Seed,
    SeededNoise,
    Statistic,
    Wanted,
    check_steps,
    noise_source,
    read_statistic,
    watched,
)
from escudo.privacy import (
    Account,
    ApproximateEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    NeighbourOptions,
    PureEvent,
    guarantee_of,
    marked_if_failed,
)

if TYPE_CHECKING:
    from escudo.privacy import Plan, Receipt

T = TypeVar("T")
S = TypeVar("S")

Noisy: TypeAlias = int | float | NDArray[np.int64] | NDArray[np.float64]
"""What comes back: of the type and shape of what went in."""


class ReleaseOptions(NeighbourOptions, total=False):
    """How a mechanism is paid for and drawn, and between which tables its sensitivity is stated: the same for all.

    Attributes:
        account: What to charge, before noise is drawn; None, the default, leaves charging to the caller.
        seed: None, the default, for a release; a seed makes the noise repeatable and the result not for release.
        purpose: Why, for the account; the mechanism's name by default.
        relation: Which tables are neighbours; replacing one by default.
        unit: Whose data differs between them; a row by default.
        max_rows_per_person: With ``unit="person"``: the most rows of one person that take part. The account's bound by
            default, except where the noise follows from this number: there it has to be given.
    """

    account: Account | None
    seed: Seed
    purpose: str


def opened(options: ReleaseOptions, purpose: str, *, bound_of_account: bool = True) -> tuple[Purse, NeighbourOptions]:
    """Return the purse that a mechanism was given, and between which tables its event is stated.

    Args:
        options: As the caller gave them.
        purpose: Why, where the caller does not say.
        bound_of_account: Whether the account's bound on a person's rows is taken where none was given.
    """
    apart = ("account", "seed", "purpose")
    account = options.get("account")
    stated = cast(NeighbourOptions, {name: value for name, value in options.items() if name not in apart})
    unbounded = stated.get("unit") == "person" and stated.get("max_rows_per_person") is None
    if bound_of_account and unbounded and account is not None:
        stated = {**stated, "max_rows_per_person": account.max_rows_per_person}
    return Purse(account, options.get("seed"), purpose=options.get("purpose", purpose)), stated


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Generic[T]):
    """A value that may be shown, with what it promises and the fact that was charged.

    Attributes:
        value: What was released.
        guarantee: What the release promises; for release only if the noise was secure: without a seed, and unwatched.
        event: The privacy event, as charged.
    """

    value: T
    guarantee: Guarantee
    event: Event

    def mapped(self, change: Callable[[T], S]) -> Release[S]:
        """Return the release with a public function applied to its value; its promise stays (post-processing)."""
        return Release(value=change(self.value), guarantee=self.guarantee, event=self.event)

    def _repr_html_(self) -> str:
        public = self.guarantee.for_release
        title = "Released" if public else "Seeded or watched, not for release"
        return card(title, repr(self.value), note=str(self.guarantee), alarm=not public)


class Purse:
    """An account to pay from and a source of noise to draw from; whatever is drawn from a private table is drawn here.

    Each draw is given its event, and nothing else decides law, scale, grid or what is charged. The account is charged
    before a single number is drawn; if it refuses, nothing is drawn. If drawing fails, what was charged stays charged
    and is marked failed, without the error's own words, which may quote private values.

    Args:
        account: What to charge; inside a question that is asked, an account that pays what the plan shows and nothing
            else. None where the caller has charged.
        seed: None for a release; a seed makes the noise repeatable, one stream for all draws, and nothing of it is for
            release.
        purpose: Why, for the account, where a draw does not say it.
        plan: The plan of the question that is asked.
        guarantee: What its answer promises.

    Raises:
        InputError: If the seed is not usable.
    """

    __slots__ = ("_guarantee", "_noise", "_plan", "_purpose", "account")

    def __init__(
        self,
        account: Account | None = None,
        seed: Seed = None,
        *,
        purpose: str = "",
        plan: Plan | None = None,
        guarantee: Guarantee | None = None,
    ):
        self.account = account
        self._noise = noise_source(seed)
        self._purpose, self._plan, self._guarantee = purpose, plan, guarantee

    @property
    def for_release(self) -> bool:
        """Whether what is drawn may be published: the noise is secure, and nobody watches."""
        return self._noise.for_release

    @property
    def stream(self) -> np.random.Generator | None:
        """The generator that a seeded purse draws from in turn; None for secure noise."""
        return self._noise.generator if isinstance(self._noise, SeededNoise) else None

    @property
    def plan(self) -> Plan:
        """What was charged for the question that is asked."""
        assert self._plan is not None, "nothing was asked"
        return self._plan

    @property
    def guarantee(self) -> Guarantee:
        """What its answer promises."""
        assert self._guarantee is not None, "nothing was asked"
        return self._guarantee

    def add(self, values: ArrayLike, event: LaplaceEvent | GaussianEvent, purpose: str = "") -> Noisy:
        """Return numbers with the very noise that the event states, of the type and shape they came in.

        Args:
            values: A number or an array of any shape; all of it is one release. Integers, by type, for an event on the
                grid 1; else real numbers, which are rounded to the event's grid.
            event: As :func:`laplace_event` or :func:`gaussian_event` gives it for as many numbers of this type.
            purpose: Why, for the account.

        Raises:
            InputError: If the event is not one for such values; nothing was spent.
            BudgetExceededError: If the account refuses; nothing was spent or drawn.

        **Guarantee.** That of :func:`laplace` or :func:`gaussian`, if the event's sensitivity is that of the values.
        """
        return self.add_statistic(_planned(values, event), event, purpose)

    def add_each(self, several: Sequence[ArrayLike], event: GaussianEvent, purposes: Sequence[str]) -> list[Noisy]:
        """Return what :meth:`add` returns of each, every one a release of the event for a purpose of its own.

        A number's noise is its own, whatever vector it is in: so secure noise that nobody watches is drawn for all of
        them at once, after all of them are charged. The law is that of one draw after the other, and other noise is
        drawn like that.

        Raises:
            InputError: As :meth:`add`; nothing was spent or drawn.
            BudgetExceededError: If the account refuses one of them; nothing was drawn, and those that were charged
                before it stay charged, marked failed.
        """
        statistics = [_planned(values, event) for values in several]
        if type(self._noise) is not SecureNoise or not statistics:
            return [
                self.add_statistic(*each) for each in zip(statistics, [event] * len(several), purposes, strict=True)
            ]
        scale = check_steps("the noise scale", event.scale / event.grid)
        with ExitStack() as paid:
            for purpose in purposes:
                paid.enter_context(self.paying(event, purpose))
            noise = watched(self._noise, event)
            steps = [each.steps(event.grid) for each in statistics]
            drawn = np.split(noise.add_gaussian(np.concatenate(steps), scale), np.cumsum([each.size for each in steps]))
            return [each.restored(part, event.grid) for each, part in zip(statistics, drawn, strict=False)]

    def add_statistic(self, statistic: Statistic, event: LaplaceEvent | GaussianEvent, purpose: str = "") -> Noisy:
        """Like :meth:`add`, for whoever has made the event from the statistic: real numbers may lie on the grid 1."""
        if isinstance(event, LaplaceEvent) and event.dimensions != statistic.size:
            raise InputError(f"the event is planned for {event.dimensions} numbers, and values has {statistic.size}.")
        scale = check_steps("the noise scale", event.scale / event.grid)
        gaussian = isinstance(event, GaussianEvent)

        def law(noise: NoiseSource) -> Noisy:
            add = noise.add_gaussian if gaussian else noise.add_laplace
            return statistic.restored(add(statistic.steps(event.grid), scale), event.grid)

        return self.draw(event, law, purpose)

    def choose(
        self,
        utilities: ArrayLike,
        event: ExponentialEvent | PureEvent,
        *,
        sensitivity: float,
        grid: float | None = None,
        purpose: str = "",
    ) -> int:
        """Return the index of one of finitely many candidates: by :func:`exponential` or :func:`permute_and_flip`.

        Args:
            utilities: One number per candidate.
            event: An ``ExponentialEvent`` for the exponential mechanism, a ``PureEvent`` for permute-and-flip.
            sensitivity: Most that any one utility moves between neighbours.
            grid: Step of the public grid for float utilities.
            purpose: Why, for the account.

        Raises:
            InputError: If an argument is out of range; nothing was spent.
            BudgetExceededError: If the account refuses; nothing was spent or drawn.
        """
        steps, scale = select_scale(utilities, sensitivity, event.epsilon, grid)
        gumbel = isinstance(event, ExponentialEvent)

        def law(noise: NoiseSource) -> int:
            return noise.gumbel_argmax(steps, scale) if gumbel else noise.exponential_argmax(steps, scale)

        return self.draw(event, law, purpose)

    def draw(self, event: Event, law: Callable[[NoiseSource], T], purpose: str = "") -> T:
        """Charge the event, then return what ``law`` makes of the noise: for mechanisms that are more than one draw.

        By the time this is called every argument has been checked, and ``law`` is proved to cost the event.

        Raises:
            BudgetExceededError: If the account refuses; nothing was spent or drawn.
        """
        with self.paying(event, purpose):
            return law(watched(self._noise, event))

    @contextmanager
    def paying(self, event: Event, purpose: str = "") -> Iterator[Receipt | None]:
        """Charge an event for a block, which is marked failed if the block is; None where the caller has charged.

        Raises:
            BudgetExceededError: If the account refuses; nothing was spent.
        """
        if self.account is None:
            yield None
            return
        receipt = self.account.spend(event, purpose=purpose or self._purpose, for_release=self.for_release)
        with marked_if_failed(self.account, receipt):
            yield receipt

    def within(self, event: Event, purpose: str = "") -> Purse:
        """Charge an event now, and return a purse whose draws are all parts of it and cost nothing more.

        For events that are not the sum of their draws: parts of disjoint rows, steps of a test, a vector padded to a
        planned length. Whoever calls it has proved that all that is drawn from it costs no more than the event.
        """
        if self.account is not None:
            self.account.spend(event, purpose=purpose or self._purpose, for_release=self.for_release)
        paid = Purse(plan=self._plan, guarantee=self._guarantee)
        paid._noise = self._noise
        return paid

    def release(self, value: T, event: Event) -> Release[T]:
        """Return a value that was drawn under an event, with what it promises, in the event's own notion."""
        if isinstance(event, GaussianEvent):
            promise = Guarantee(rho=event.rho, for_release=self.for_release, source=event, **event.stated)
        else:
            promise = guarantee_of(
                event,
                delta=event.delta if isinstance(event, ApproximateEvent) else 0.0,
                for_release=self.for_release,
            )
        return Release(value=value, guarantee=promise, event=event)

    def __repr__(self) -> str:
        return f"purse of {self.account!r}" + ("" if self.for_release else ", not for release")


def _planned(values: ArrayLike, event: LaplaceEvent | GaussianEvent) -> Statistic:
    """Return numbers that an event was planned for."""
    statistic = read_statistic("values", values)
    if statistic.exact != (event.grid == 1):  # an event for integers leaves no room for rounding
        raise InputError("values and the event planned for them must be of integers, on the grid 1, or neither.")
    return statistic


def select_scale(
    utilities: ArrayLike, sensitivity: float, epsilon: float, grid: float | None = None
) -> tuple[Integers, float]:
    """Return utilities in grid steps, and the noise scale 2Δ/ε in steps that makes their noisy maximum cost ε."""
    statistic = read_statistic("utilities", utilities)
    if statistic.numbers.ndim != 1:
        raise InputError(f"utilities must be one-dimensional; got {statistic.numbers.ndim} dimensions.")
    delta = positive("sensitivity", sensitivity)
    noise = statistic.noise(delta, "linf", Wanted(epsilon / 2, None, grid))
    return statistic.steps(noise.step), noise.scale
