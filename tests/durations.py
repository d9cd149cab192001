"""How long tests take, by file: recorded by ``make durations``, and used to start the longest ones first.

Seconds are those of the machine in the record; only their order counts.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

RECORD = Path(__file__).with_suffix(".json")
_WORTH_A_LINE = 1.0  # seconds; what is quicker can come last in any order


def recorded() -> dict[str, float]:
    """Return the seconds that each file of tests took, as far as they were worth a line."""
    seconds: dict[str, float] = json.loads(RECORD.read_text(encoding="utf-8"))["seconds"]
    return seconds


def record(report: Path, commit: str) -> None:
    """Write down what pytest's JUnit report says."""
    seconds: Counter[str] = Counter()
    tests = 0
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.attrib["classname"].split(".")
        while name and not Path(*name).with_suffix(".py").exists():
            name.pop()  # a class in its file
        seconds[Path(*name).with_suffix(".py").as_posix() if name else "."] += float(case.attrib["time"])
        tests += 1
    dear = {name: round(spent, 1) for name, spent in seconds.most_common() if spent >= _WORTH_A_LINE}
    about = {
        "commit": commit,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "tests": tests,
        "seconds in all": round(seconds.total()),
    }
    RECORD.write_text(json.dumps({**about, "seconds": dear}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record(Path(sys.argv[1]), sys.argv[2])
