r"""The cap of an account, as a filter: what may still be spent, where releases decide what is asked next and how much.

An accountant's total is proved for amounts that were settled beforehand. As a cap it fails once outputs decide amounts:
under a cap of (3, 1e-6), twenty randomised responses of ε = 0.1 and one more spend chosen by their answers, each total
within the cap by the best accountant, are together no better than (3.39, 1e-6). Choosing the best order of Rényi
divergence, or the part of δ that is left for composition, after the fact is what fails. Here both are fixed when the
account is opened.

**At opening**, from the terms alone: a share s of δ is set aside for mechanisms that have a δ of their own,
:math:`δ_s = sδ`; the rest is :math:`δ_c = δ - δ_s`. One order α > 1 is fixed, and with it

.. math:: B = ε - \log(1 - 1/α) + \frac{\log δ_c + \log α}{α - 1},

the Rényi divergence at which (ε, δ_c) holds (``renyi_to_epsilon``, solved for the divergence).

**The rule.** Every spend is charged with three numbers that bound it for all neighbours: its pure loss p (or infinity),
its Rényi divergence r of order α, and t = -log(1 - δᵢ) for its own δᵢ, outside which p and r hold. Sums P, R and S are
kept. A spend is admitted if and only if

.. math:: S + t \le -\log(1 - δ_s) \quad\text{and}\quad (P + p \le ε \;\text{ or }\; R + r \le B).

Where δ = 0 only P + p ≤ ε and t = 0 counts.

**Theorem.** Whatever is asked next, and how much, as a function of all earlier outputs and public facts, everything
that is ever released under the rule is together (ε, δ)-differentially private.

*Proof.* Fix neighbours; let 𝒫, 𝒬 be the laws of the whole transcript.

1. *Slack.* A step that is bounded by (p, r) outside δᵢ is a post-processing of one that raises a flag with probability
   δᵢ, whatever the data, and otherwise is bounded by (p, r) (``_curves``: Kairouz, Oh, Viswanath 2015). Publish the
   flags. Before the first flag, 1{no flag}/Π(1 - δᵢ) is a martingale of mean 1, and Π(1 - δᵢ) = e^{-S} ≥ 1 - δ_s on
   every path, so no flag is raised with probability at least 1 - δ_s. A transcript x without flags has weight
   w(x)·p̃(x) under 𝒫 and w(x)·q̃(x) under 𝒬, with the same w(x) = Π(1 - δᵢ) ≤ 1, where p̃ and q̃ are the laws of the
   process that has no flags. Hence 𝒫(A) - e^ε 𝒬(A) ≤ δ_s + sup_A (p̃(A) - e^ε q̃(A)).
2. *Rényi filter.* In the process without flags let pᵢ, qᵢ be the conditional laws of step i. Given the past, which also
   fixes rᵢ, E_q[(pᵢ/qᵢ)^α] ≤ e^{(α-1)rᵢ}. So Π(pᵢ/qᵢ)^α e^{-(α-1)Σrᵢ} is a supermartingale under q̃ of mean at most 1.
   If Σrᵢ ≤ B on every path, E_q̃[(p̃/q̃)^α] ≤ e^{(α-1)B}: D_α(p̃‖q̃) ≤ B, which gives (ε, δ_c). Charges bound both
   orders of the pair (Feldman, Zrnic 2021, "Individual privacy accounting via a Rényi filter"; Lécuyer 2021;
   Whitehouse, Ramdas, Rogers, Wu 2023 for steps with a δ of their own).
3. *Basic filter.* If Σpᵢ ≤ ε on every path, every log-ratio is at most ε: (ε, 0) (Rogers, Roth, Ullman, Vadhan 2016).
4. *Either of the two.* Sums only grow, so at the end of every transcript ΣP ≤ ε or ΣR ≤ B. Let E be the transcripts
   with ΣP ≤ ε, and F the others. On E the process is the one that the basic filter alone would have let through, on F
   the one that the Rényi filter alone would have. So p̃(A) = p̃(A∩E) + p̃(A∩F) ≤ e^ε q̃(A∩E) + e^ε q̃(A∩F) + δ_c. ∎

Processes that interleave are covered: filters for (ε, δ) and for one Rényi order survive concurrent composition (Haney
et al. 2023, arXiv:2309.05901). An amount may depend on releases and on public facts, never on the rows themselves. A
cap is one account's: budgets of two accounts add up.

**Three forms of a charge.** Each is a true bound on the same spend, so any may be charged; the first that fits is.

* ``parts``: the sums of p, r and t over the releases that the spend consists of.
* ``together``: a spend's own amounts are settled before it, so inside it the best accountant is proved. If it says
  (ε′, δ′) for some δ′ that the slack still has, the charge is p = ε′, r = the divergence of ε′-DP, t = -log(1 - δ′).
* ``everything``: the very first spend is chosen before any output, so whether it takes the whole account is settled
  beforehand too. If it is within (ε, δ) by the best accountant, it may have all there is; nothing is left. Only a spend
  that asks for more than half of ε is charged so: less would waste the account.

**Numbers** are whole: p and r in units of 1e-18, t of 1e-30. Charges are rounded up, once; sums are exact; B is
evaluated with 50 digits and rounded down; what rounding adds to δ_s is taken from δ_c. P alone is forgiven one part in
10⁹, because a noise scale of sensitivity/ε is itself rounded (``within``); a cap of ε therefore means ε(1 + 1e-9).

**Groups.** Only one order is controlled, so a group of k gets what (ε, δ) gives it (``approximate_for_group``), not
k²ρ. Whoever wants to protect several rows together opens the account with ``unit="person"``.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import numpy as np

from escudo.errors import InputError
from escudo.privacy._events import ApproximateEvent, Event, PureEvent
from escudo.privacy._totals import RunningTotal, leaf_curve, leaves, to_atto, within

Form = Literal["parts", "together", "everything"]
FORMS: tuple[Form, ...] = get_args(Form)

ORDERS: tuple[float, ...] = (
    *(1 + number / 4 for number in range(1, 797)),
    *(float(round(200 * 1.02**number)) for number in range(1, 431)),
)
"""Orders that an account may be opened with: quarter steps to 200, then 2% apart to a million."""

_ATTO = 10**18
_SLACK = 10**30
_DIGITS = decimal.Context(prec=50, Emin=-(10**6), Emax=10**6)
_GRACE = Fraction(1, 10**9)
_TRIES = (8, 4, 2, 1)
"""Which parts of the slack that is left a spend is tried with as one statement: an eighth first."""


class Charge(NamedTuple):
    """What a spend is charged with, or what all spends add up to.

    Attributes:
        pure: Pure loss, in units of 1e-18; None if it is unbounded.
        renyi: Rényi divergence of the account's order, in units of 1e-18.
        slack: -log(1 - δ) for the spend's own δ, in units of 1e-30.
    """

    pure: int | None
    renyi: int
    slack: int

    def plus(self, other: Charge) -> Charge:
        """Return the sum, exactly."""
        pure = None if self.pure is None or other.pure is None else self.pure + other.pure
        return Charge(pure, self.renyi + other.renyi, self.slack + other.slack)


NOTHING = Charge(0, 0, 0)


class Paid(NamedTuple):
    """How a spend is charged.

    Attributes:
        charge: The three numbers.
        form: Which of the three forms.
        delta: The δ′ of a spend that is charged ``together``; else 0.
    """

    charge: Charge
    form: Form = "parts"
    delta: float = 0.0


@dataclass(frozen=True, slots=True)
class Filter:
    """The cap of an account, fixed when it is opened.

    Attributes:
        epsilon: The ε of the cap.
        delta: The δ of the cap.
        order: The order α; None where δ = 0.
        cap: The largest sums: ε, B (0 where it is negative or δ = 0) and -log(1 - δ_s).
    """

    epsilon: float
    delta: float
    _: KW_ONLY
    order: float | None
    cap: Charge

    def admits(self, spent: Charge, asked: Charge) -> bool:
        """Return whether the rule allows ``asked`` after ``spent``."""
        total = spent.plus(asked)
        if total.slack > self.cap.slack:
            return False
        return self._basic(total.pure) or (self.order is not None and total.renyi <= self.cap.renyi)

    def _basic(self, pure: int | None) -> bool:
        assert self.cap.pure is not None, "a cap is a number"
        return pure is not None and pure <= self.cap.pure * (1 + _GRACE)

    def pay(self, event: Event, spent: Charge) -> Paid | None:
        """Return how a spend of ``event`` is charged after ``spent``, or None if it is refused.

        Args:
            event: What is asked for, stated for the account.
            spent: The sums so far.
        """
        parts = self.charge(event)
        if self.admits(spent, parts):
            return Paid(parts)
        left = Fraction(self.cap.slack - spent.slack, _SLACK)
        if left > 0:
            for part in _TRIES:
                delta = -math.expm1(-float(left / part)) * (1 - 1e-12)
                paid = Paid(self._together(event, delta), "together", delta)
                if self.admits(spent, paid.charge):
                    return paid
        if spent == NOTHING:  # then no output so far tells anything about the rows
            alone = _epsilon(event, self.delta)
            if alone > self.epsilon / 2 and within(alone, self.epsilon):
                return Paid(self.cap, "everything")
        return None

    def repaid(self, event: Event, form: str, delta: float) -> Charge:
        """Return the charge of a spend that was recorded in some form, worked out again.

        Raises:
            ValueError: If there is no such form, or the spend could not have been charged so.
        """
        if form == "parts":
            return self.charge(event)
        if form == "together" and 0 < delta < 1:
            return self._together(event, delta)
        if form == "everything" and within(_epsilon(event, self.delta), self.epsilon):
            return self.cap
        raise ValueError("no such form of charge")

    def charge(self, event: Event) -> Charge:
        """Return the charge by parts."""
        return _charge(event, self.order)

    def used(self, spent: Charge) -> float:
        """Return the part of the budget that is used: of ε or of B, whichever is less; may be above 1."""
        assert self.cap.pure is not None, "a cap is a number"
        parts = [] if spent.pure is None else [spent.pure / self.cap.pure]
        if self.cap.renyi:
            parts.append(spent.renyi / self.cap.renyi)
        return min(parts, default=math.inf)

    def slack_used(self, spent: Charge) -> tuple[float, float]:
        """Return how much δ of their own the spends have, and how much they may have."""
        return abs(math.expm1(-spent.slack / _SLACK)), abs(math.expm1(-self.cap.slack / _SLACK))

    def _together(self, event: Event, delta: float) -> Charge:
        epsilon = _epsilon(event, delta)
        slack = _slack_of(delta)
        if math.isinf(epsilon):
            return Charge(None, self.cap.renyi + 1, slack)
        as_pure = _charge(PureEvent(epsilon=min(epsilon, 1e3)), self.order)
        return Charge(to_atto(epsilon), as_pure.renyi if epsilon <= 1e3 else self.cap.renyi + 1, slack)


@lru_cache(maxsize=256)
def filter_of(epsilon: float, delta: float, slack_share: float | None, order: float | None) -> Filter:
    """Return the filter for a cap of (ε, δ).

    Args:
        epsilon: Above 0.
        delta: In [0, 1).
        slack_share: The share of δ set aside for mechanisms with a δ of their own; None where δ = 0.
        order: The order of Rényi divergence; None where δ = 0.
    """
    basic = Filter(epsilon, delta, order=None, cap=Charge(to_atto(epsilon), 0, 0))
    if delta == 0 or order is None or slack_share is None:
        return basic
    slack = _slack_of(float(_exactly(delta) * _exactly(slack_share)))
    room = math.floor(_room(epsilon, delta, slack, order) * _ATTO)
    return replace(basic, order=order, cap=basic.cap._replace(renyi=max(0, room), slack=slack))


def best_order(epsilon: float, delta: float, slack_share: float, event: Event | None = None) -> float:
    """Return the order under which most fits: most of ``event``, or else most noise of constant ρ.

    Args:
        epsilon: The ε of the cap.
        delta: The δ of the cap, above 0.
        slack_share: The share of δ set aside.
        event: What will mostly be spent; None for noise whose divergence is ρα.
    """
    orders = np.array(ORDERS)
    rest = delta * (1 - slack_share)
    rooms = epsilon - np.log1p(-1 / orders) + (math.log(rest) + np.log(orders)) / (orders - 1)
    each = orders
    if event is not None:
        each = np.zeros_like(orders)
        for leaf, times in leaves(event):
            each = each + times * leaf_curve(leaf).divergences(orders)
        if not each.all():
            raise InputError("order must be tuned for a plan that costs something.")
    return float(orders[int(np.argmax(rooms / each))])


def _room(epsilon: float, delta: float, slack: int, order: float) -> Decimal:
    """Return B, with 50 digits: what the slack takes of δ, as it was rounded, is not left for composition."""
    with decimal.localcontext(_DIGITS):
        aside = 1 - (-Decimal(slack) / _SLACK).exp()
        rest = _exactly(delta) - aside * (1 + Decimal("1e-45"))
        if rest <= 0:
            return Decimal(0)
        alpha = _exactly(order)
        room = _exactly(epsilon) - (1 - 1 / alpha).ln() + (rest.ln() + alpha.ln()) / (alpha - 1)
        return room - Decimal("1e-40")  # more than the rounding of these operations


@lru_cache(maxsize=8192)
def _charge(event: Event, order: float | None) -> Charge:
    """Return p, r and t of an event, each rounded up; r is 0 where there is no order."""
    return _total(_leaf_charge(leaf, order, times) for leaf, times in leaves(event))


@lru_cache(maxsize=256)
def _epsilon(event: Event, delta: float) -> float:
    """Return the best accountant's ε of a spend by itself."""
    return RunningTotal.of(event).epsilon(delta)


def _leaf_charge(leaf: Event, order: float | None, times: int) -> Charge:
    curve = leaf_curve(leaf)
    pure = to_atto(curve.pure)
    renyi = 0
    if order is not None:
        found = Fraction(float(curve.divergences(np.array([order]))[0]))
        renyi = math.ceil(found * _ATTO * (1 + Fraction(1, 10**12)))
    if isinstance(leaf, ApproximateEvent):
        slack = _slack_of(leaf.delta)
    else:
        slack = math.ceil(Fraction(curve.slack) * _SLACK * (1 + Fraction(1, 10**12)))
    return Charge(None if pure is None else pure * times, renyi * times, slack * times)


def _total(charges: Iterable[Charge]) -> Charge:
    total = NOTHING
    for charge in charges:
        total = total.plus(charge)
    return total


def _slack_of(delta: float) -> int:
    """Return -log(1 - δ) in units of 1e-30, rounded up, for the shortest decimal form of δ."""
    if delta == 0:
        return 0
    with decimal.localcontext(_DIGITS):
        exact = -(1 - _exactly(delta)).ln() * _SLACK
        charged = int((exact * (1 + Decimal("1e-45"))).to_integral_value(rounding=ROUND_CEILING))
    return max(charged, 1)  # with a δ below 1e-50, 1 - δ is 1 in so many digits


def _exactly(number: float) -> Decimal:
    """Return a number as people write it: 0.1 for 0.1."""
    return Decimal(repr(number))
