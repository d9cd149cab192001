"""Two mechanisms without differential privacy that a population without certain values makes look private.

Tschantz, Sen and Datta, Differential Privacy as a Causal Property, Proposition 4 and Appendix B. Setting one data point
finds the flaw where conditioning does not, unless it takes two data points at once.
"""

from __future__ import annotations

import math
from pathlib import Path

from escudo import SEM
from escudo.effects import definitions, mechanism_of, show_epsilon

HERE = Path(__file__).parent
WITHOUT_BOUND = {"proposition_4.sem": (1, 2, 3, 4, 5, 6, 8), "appendix_b.sem": (1, 2, 3, 4, 5, 6, 7, 8)}


def main() -> None:
    for file, broken in WITHOUT_BOUND.items():
        found = definitions(*mechanism_of(SEM.read(HERE / file)))
        print(file)
        for number, one in found.items():
            assert one.epsilon == (math.inf if number in broken else 0.0), (file, number)
            print(f"  {number!s:>9}  ε = {show_epsilon(one.epsilon):<3} {one.sentence}")


if __name__ == "__main__":
    main()
