"""Where and when a result was made: what every page of benchmarks begins with.

The commit is the one that was checked out; if the package differs from it, that is said beside it. Pages and records
that were written before have their own words for the same things.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["commit", "made", "processor", "told"]

_HERE = Path(__file__).parent


def made(**more: Any) -> dict[str, Any]:
    """Return date, commit, processor, cores, load and Python's version, and what else a script has to say."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        **more,
    }


def told(facts: Mapping[str, Any]) -> str:
    """Return what :func:`made` found out, in the words that pages begin with."""
    seed = f", seed {facts['seed']}" if "seed" in facts else ""
    return (
        f"{facts['date']}, commit {facts['commit']}{seed}. {facts['processor']}, {facts['cores']} cores, load "
        f"{facts['load_average']:.1f}, Python {facts['python']}"
    )


def commit() -> str:
    """Return the commit that is measured, with a remark if the package has changes that are in none.

    Where the sources are a copy without their history, ``ESCUDO_COMMIT`` says it.
    """

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False, cwd=_HERE)
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = git("status", "--porcelain", "--", "../src")
    known = git("rev-parse", "--short", "HEAD") or os.environ.get("ESCUDO_COMMIT", "none")
    return known + (" with uncommitted changes" if changed else "")


def processor() -> str:
    """Return the processor's name as the system gives it."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
