"""Keep how much of each package the tests pass through: ``make coverage`` writes ``tests/coverage.json``."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from coverage import Coverage

HOME = Path(__file__).parents[1]
SOURCE = HOME / "src" / "escudo"


def shares() -> dict[str, dict[str, float]]:
    """Return the statements of each package and the percentage that was run, from the data of the last run."""
    coverage = Coverage(data_file=str(HOME / ".coverage"), config_file=False)
    coverage.load()
    counted: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for file in sorted(SOURCE.rglob("*.py")):
        _, statements, _, missing, _ = coverage.analysis2(str(file))
        place = file.relative_to(SOURCE)
        for name in (place.parts[0] if len(place.parts) > 1 else "escudo", "in all"):
            counted[name][0] += len(statements)
            counted[name][1] += len(statements) - len(missing)
    return {
        name: {"statements": every, "percent": round(100 * run / every, 1)} for name, (every, run) in counted.items()
    }


if __name__ == "__main__":
    found = {"commit": sys.argv[1], "packages": shares()}
    (HOME / "tests" / "coverage.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found["packages"]["in all"]))
