"""What a cap costs that holds for amounts chosen on the way: the Rényi filter beside the totals for settled amounts.

Run ``python benchmarks/caps.py`` from the repository's root; it takes about a minute and writes
``benchmarks/results/caps.json`` and ``caps.md``. For some ledgers it finds the smallest ε of a cap (δ = 1e-6, order
chosen for that cap) that admits them spend by spend, and compares it with the best accountant's total, which is proved
only where all amounts were settled before the first release.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from _made import made, told

from escudo.privacy import (
    ApproximateEvent,
    Budget,
    Event,
    ExponentialEvent,
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    RunningTotal,
    SampledGaussianEvent,
    calibrate,
)
from escudo.privacy._filter import NOTHING, best_order, filter_of

DELTA = 1e-6
RESULTS = Path(__file__).parent / "results"


def gaussian(epsilon: float) -> Event:
    def at(noise: float) -> Event:
        return GaussianEvent(l2_sensitivity=1.0, scale=noise, grid=0.0)

    return at(calibrate(at, Budget(epsilon, DELTA)))


def laplace(epsilon: float) -> Event:
    return LaplaceEvent(l1_sensitivity=1.0, scale=1 / epsilon, grid=0.0)


STEP = SampledGaussianEvent(noise_multiplier=1.1, sampling_probability=0.01, relation="add_remove")
PTR = ApproximateEvent(epsilon=0.1, delta=1e-7)
MIXED = [*[gaussian(1.0)] * 2, *[laplace(0.05)] * 20, *[ExponentialEvent(epsilon=0.05)] * 20]
LEDGERS: dict[str, list[Event]] = {
    "3 of Gaussian noise, each (1, 1e-6)": [gaussian(1.0)] * 3,
    "30 of Gaussian noise, each (0.1, 1e-6)": [gaussian(0.1)] * 30,
    "1000 of Laplace noise, each 0.01": [laplace(0.01)] * 1000,
    "20 of Laplace noise, each 0.1": [laplace(0.1)] * 20,
    "100 choices by the exponential mechanism, each 0.1": [ExponentialEvent(epsilon=0.1)] * 100,
    "2000 steps of DP-SGD (σ = 1.1, q = 0.01), one by one": [STEP] * 2000,
    "2 Gaussian of 1, 20 Laplace and 20 choices of 0.05, 2 pure of 0.1": [*MIXED, *[PureEvent(epsilon=0.1)] * 2],
    "the same with 2 of (0.1, 1e-7) for the pure ones": [*MIXED, PTR, PTR],
    "1 Gaussian of (1, 1e-6), then 1 pure of 1": [gaussian(1.0), PureEvent(epsilon=1.0)],
    "1 pure of 1, then 1 Gaussian of (1, 1e-6)": [PureEvent(epsilon=1.0), gaussian(1.0)],
}


def admitted(events: list[Event], epsilon: float) -> bool:
    rule = filter_of(epsilon, DELTA, 0.5, best_order(epsilon, DELTA, 0.5))
    spent = NOTHING
    for event in events:
        paid = rule.pay(event, spent)
        if paid is None:
            return False
        spent = spent.plus(paid.charge)
    return True


def smallest_cap(events: list[Event], total: float) -> float:
    low, high = total * 0.95, total * 3
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if admitted(events, middle) else (middle, high)
    return high


def main() -> None:
    rows: list[dict[str, Any]] = []
    for name, events in LEDGERS.items():
        total = RunningTotal.of(events)
        settled = total.epsilon(DELTA)
        cap = smallest_cap(events, settled)
        rows.append({"ledger": name, "basic": total.epsilon(0.0), "settled": settled, "cap": cap})
        print(f"{name}: settled {settled:.3f}, cap {cap:.3f}, {100 * (cap / settled - 1):.0f} %", flush=True)
    facts = made()
    RESULTS.joinpath("caps.json").write_text(json.dumps({**facts, "ledgers": rows}, indent=1, default=str) + "\n")
    lines = [
        "# What a cap costs that holds for amounts chosen on the way",
        "",
        f"{told(facts)}. Made by `python benchmarks/caps.py`.",
        "",
        "Smallest ε of a cap at δ = 1e-6 that admits the spends one by one, against the best accountant's total, which",
        "holds only where all amounts were settled before the first release.",
        "",
        "| spends | settled beforehand | cap, amounts chosen on the way | more |",
        "|---|---|---|---|",
        *(
            f"| {row['ledger']} | {row['settled']:.2f} | {row['cap']:.2f} | "
            f"{100 * (row['cap'] / row['settled'] - 1):.0f} % |"
            for row in rows
        ),
    ]
    RESULTS.joinpath("caps.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
