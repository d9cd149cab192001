"""What a mechanism gives back, and the one order in which it may act: check, charge, draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from escudo._card import card
from escudo.mechanisms._noise import NoiseSource, Seed, noise_source, watched
from escudo.privacy import Account, ApproximateEvent, Event, GaussianEvent, Guarantee, Unit, guarantee_of
from escudo.privacy._account import marked_if_failed

__all__ = ["Release", "bound_on_rows", "mapped", "released"]

T = TypeVar("T")
S = TypeVar("S")


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

    def _repr_html_(self) -> str:
        public = self.guarantee.for_release
        title = "Released" if public else "Seeded or watched, not for release"
        return card(title, repr(self.value), note=str(self.guarantee), alarm=not public)


def released(
    event: Event,
    draw: Callable[[NoiseSource], T],
    *,
    account: Account | None,
    seed: Seed,
    purpose: str,
) -> Release[T]:
    """Charge the event, draw the noise, and return the value with its guarantee.

    By the time this is called every argument has been checked. The account is charged before a single number is drawn;
    if it refuses, nothing is drawn. If drawing fails, what was charged stays charged and is marked failed, without the
    error's own words, which may quote private values.

    Raises:
        InputError: If the seed is not usable; nothing was charged.
        BudgetExceededError: If the account refuses; nothing was charged or drawn.
    """
    noise = noise_source(seed)
    promise = _promise(event, for_release=noise.for_release)
    if account is None:
        value = draw(watched(noise, event))
    else:
        receipt = account.spend(event, purpose=purpose, for_release=noise.for_release)
        with marked_if_failed(account, receipt):
            value = draw(watched(noise, event))
    return Release(value=value, guarantee=promise, event=event)


def mapped(release: Release[T], change: Callable[[T], S]) -> Release[S]:
    """Return the release with a public function applied to its value; its promise stays the same (post-processing)."""
    return Release(value=change(release.value), guarantee=release.guarantee, event=release.event)


def bound_on_rows(unit: Unit, max_rows_per_person: int | None, account: Account | None) -> int | None:
    """Return the bound on one person's rows that an event states: what was given, else the account's."""
    if unit == "person" and max_rows_per_person is None and account is not None:
        return account.max_rows_per_person
    return max_rows_per_person


def _promise(event: Event, *, for_release: bool) -> Guarantee:
    """Return the guarantee in the event's own notion: rho for Gaussian noise, else epsilon at the event's own delta."""
    if isinstance(event, GaussianEvent):
        return Guarantee(
            rho=event.rho,
            relation=event.relation,
            unit=event.unit,
            max_rows_per_person=event.max_rows_per_person,
            for_release=for_release,
            source=event,
        )
    delta = event.delta if isinstance(event, ApproximateEvent) else 0.0
    return guarantee_of(event, delta=delta, for_release=for_release)
