"""A ledger as a diagram: what all releases together do to one row, to a household, to an attribute behind it."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

from escudo import Ledger
from escudo.effects import bound, from_ledger
from escudo.privacy import PureEvent, ZCDPEvent

HOUSEHOLD = 3
DELTA = 1e-6


def main() -> None:
    with TemporaryDirectory() as folder, Ledger(f"sqlite:///{Path(folder) / 'ledger.db'}") as ledger:
        ledger.open("visits", epsilon=3.0, delta=DELTA)
        ledger.spend("visits", PureEvent(epsilon=0.5), purpose="how many visits a month")
        ledger.spend("visits", ZCDPEvent(rho=0.01), purpose="a table of diagnoses")
        diagram = from_ledger(ledger, "visits", people=HOUSEHOLD)
        spent = ledger.total("visits").epsilon
    releases = [name for name, node in diagram.nodes.items() if node.kind == "mechanism"]
    points = [f"D{i + 1}" for i in range(HOUSEHOLD)]
    one = bound(diagram, of="D1", on=releases, delta=DELTA)
    household = bound(diagram, of=points, on=releases, delta=DELTA)
    attribute = bound(diagram, of="R", on=releases, delta=DELTA)
    assert spent is not None
    assert math.isclose(one.epsilon, spent, rel_tol=1e-6)
    assert one.epsilon < household.epsilon == attribute.epsilon
    for found in (one, household, attribute):
        print(found)


if __name__ == "__main__":
    main()
