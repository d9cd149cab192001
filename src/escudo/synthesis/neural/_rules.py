"""How many steps, how large a sample, how loud the start: a public rule of rows, columns and ε.

Nothing here was tuned on a private table. The numbers come from a simulated one (120 columns of two levels, 5,000 rows,
ε = 1 and 3; not one of the benchmarks), where trainings were searched by the thousand:

* A start takes most of the budget well: its own error falls with the share, and steps make up for what is left. Between
  0.3 and 0.9 of the budget the outcome hardly differs; more for the start keeps shares of single columns better.
* From such a start 40 steps over all rows are as good as 160, and better than 10.
* A clip bound that few gradients exceed is better than a narrow one, which biases the shares of levels (``_start``).
* Where noise rules the gradients, Adam goes in random directions, in steps as long as its learning rate: the rate has
  to fall with the noise, and the start deserves more of the budget.
* Networks with a latent have many more parameters, and want smaller steps. Those without one do not: on simulated
  tables of 14 to 222 columns and 1,000 to 20,000 rows, at ε = 1 and 3 and with 2 to 5 seeds each, fresh rows were
  likelier after training at a rate of 0.03 than of 0.01 or 0.003 in all of 18 settings, and covariances nearer than at
  0.01 in 15. Shares of levels were off by 0.05 points more, from -0.04 to 0.13.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Rule", "learning_rate_for", "rule_for"]

_UNKNOWN_ROWS = 10_000  # what is assumed where the number of rows is not public beforehand
_LARGEST_SAMPLE = 8192
_STEPS = 40
_QUIET = 0.06  # noise on a coordinate up to which rates need not fall
_USUAL = 15_000  # rows times ε, up to which so many steps are enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a training is like before noise is calibrated.

    Attributes:
        start_share: Of the budget, in squared noise, for the model that the training starts from.
        steps: Noisy gradients.
        sampling_probability: The chance of each row in each.
        learning_rate: Adam's, at most.
        averaging: The memory of the parameters' average.
        pretraining: Steps on rows simulated from the start, which are free.
    """

    start_share: float
    steps: int
    sampling_probability: float
    learning_rate: float
    averaging: float
    pretraining: int


def rule_for(*, rows: int | None, columns: int, epsilon: float, latent: bool = False) -> Rule:
    """Return the rule for a table with this many rows (None: not known beforehand) and columns.

    >>> rule = rule_for(rows=5000, columns=222, epsilon=1.0)
    >>> rule.steps, rule.sampling_probability, round(rule.start_share, 2)
    (40, 1.0, 0.77)
    """
    known = _UNKNOWN_ROWS if rows is None else rows
    # More data or budget per step allow for more steps, each of them smaller.
    longer = min(max(math.sqrt(known * epsilon / _USUAL), 1.0), 5.0)
    return Rule(
        start_share=min(max(1 - known * epsilon / (100 * columns), 0.6), 0.9),
        steps=round(_STEPS * longer),
        sampling_probability=min(1.0, _LARGEST_SAMPLE / known),
        learning_rate=0.004 if latent else 0.03,
        averaging=0.8,
        pretraining=min(200 + 20 * columns, 5000),
    )


def learning_rate_for(rate: float, noise: float) -> float:
    """Return Adam's learning rate where each coordinate of a mean gradient carries noise of this standard deviation.

    >>> learning_rate_for(0.03, 0.01), round(learning_rate_for(0.03, 0.6), 4)
    (0.03, 0.003)
    """
    return rate * min(1.0, _QUIET / noise)
