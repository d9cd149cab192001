"""What builds, checks, ships and explains escudo names only what is there: workflows, scripts, constraints, READMEs."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

HOME = Path(__file__).parents[2]
if not (HOME / ".ci").exists():
    pytest.skip("an sdist has no build scripts", allow_module_level=True)

yaml = pytest.importorskip("yaml")
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = {*PROJECT["project"]["optional-dependencies"]}
GROUPS = {*PROJECT["dependency-groups"]}
WORKFLOWS = sorted((HOME / ".github" / "workflows").glob("*.yml"))
SCRIPTS = [HOME / ".ci" / name for name in ("run", "packages", "supply")]
PACKAGES = HOME / "src" / "escudo"
READMES = sorted(PACKAGES.rglob("README.md"))
CONTAINER = (HOME / "Containerfile").read_text(encoding="utf-8")


def commands(workflow: Path) -> list[str]:
    """Return every line that a workflow runs."""
    jobs: dict[str, Any] = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return [line for job in jobs.values() for step in job["steps"] for line in step.get("run", "").splitlines() if line]


def lines_of(script: Path) -> list[str]:
    return [line for line in script.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]


def targets() -> set[str]:
    """Return what ``make`` can make; bench-NAME for each benchmark."""
    text = (HOME / "Makefile").read_text(encoding="utf-8")
    named = {name for line in re.findall(r"^([\w -]+):(?!=)", text, re.MULTILINE) for name in line.split()}
    return named | {f"bench-{path.stem}" for path in (HOME / "benchmarks").glob("[a-z]*.py")}


def check(line: str) -> None:
    """Check that scripts, targets, extras, groups and files that a line names are there."""
    for extras in re.findall(r"\.?\[([a-z,]+)\]", line):
        assert {*extras.split(",")} <= EXTRAS, line
    for group in re.findall(r"--group (\w+)", line):
        assert group in GROUPS, line
    for path in re.findall(r"(?<![\w./-])(?:\./)?((?:\.ci|constraints|examples|src|tests|benchmarks)/[\w./-]+)", line):
        assert (HOME / path).exists(), line
    for called in re.findall(r"(?:^|&& |\")make ((?:[a-z_-]+ ?)+)", line):
        assert {word for word in called.split() if not word.startswith("-")} <= targets(), line
    for script, options in re.findall(r"(\.ci/\w+)((?: --?[\w-]+)*)", line):
        assert os.access(HOME / script, os.X_OK), line
        taken = re.findall(r"^ +(--\w+)\)", (HOME / script).read_text(encoding="utf-8"), re.MULTILINE)
        assert {*options.split()} <= {*taken}, line


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_only_what_is_there(workflow: Path) -> None:
    assert commands(workflow)
    for line in commands(workflow):
        check(line)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_names_only_what_is_there(script: Path) -> None:
    assert lines_of(script)[0].startswith("set -euo pipefail")
    for line in lines_of(script):
        check(line)


@pytest.mark.parametrize(
    "line",
    ["make tests", ".ci/package", ".ci/packages --newest", "pip install '.[postgres]'", "pip install --group tests",
     "pip install --constraint constraints/latest.txt ."],
)  # fmt: skip
def test_the_check_itself_sees_what_is_missing(line: str) -> None:
    with pytest.raises(AssertionError):
        check(line)


def test_the_container_copies_only_what_is_there_and_runs_as_an_ordinary_user() -> None:
    steps = re.findall(r"^([A-Z]+) (.*)$", CONTAINER.replace("\\\n", " "), re.MULTILINE)
    for word, rest in steps:
        sources = shlex.split(rest)[:-1]
        if word == "COPY" and not rest.startswith("--from"):
            assert all((HOME / source).exists() for source in sources), rest
        check(rest)
    words = [word for word, _ in steps]
    assert words.index("USER") < words.index("CMD")
    (shown,) = re.findall(r"[\w/.]+demo\.py", dict(steps)["CMD"])
    assert f"COPY examples/demo.py {shown}\n" in CONTAINER
    assert dict(steps)["USER"] not in ("root", "0")
    assert "studio" in CONTAINER
    needed = {
        "README.md",
        *PROJECT["project"]["license-files"],
        "pyproject.toml",
        "src",
    }  # what a build of the wheel reads
    assert needed <= {name for word, rest in steps if word == "COPY" for name in rest.split()}


@pytest.mark.parametrize("name", ["oldest", "newest", "developers"])
def test_constraints_pin_every_dependency_within_what_is_allowed(name: str) -> None:
    text = (HOME / "constraints" / f"{name}.txt").read_text(encoding="utf-8")
    pins = {found[1].lower(): found[2] for found in re.finditer(r"^([\w.-]+)(?:\[.*\])?==([\w.]+)", text, re.MULTILINE)}
    asked = [*PROJECT["project"]["dependencies"]]
    for extra in PROJECT["project"]["optional-dependencies"].values():
        asked += extra
    for requirement in asked:
        found = re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)$", requirement)
        assert found, requirement
        pin = pins[found[1].lower().replace("_", "-")]
        least, at = ([int(part) for part in version.split(".")[:3] if part.isdigit()] for version in (found[2], pin))
        width = max(len(least), len(at))
        least, at = least + [0] * (width - len(least)), at + [0] * (width - len(at))
        assert at >= least, requirement
        if name == "oldest":
            assert at[: found[2].count(".") + 1] == least[: found[2].count(".") + 1], requirement


def unknown_files(package: Path, text: str) -> list[str]:
    """Return the files that a package's README names and that are nowhere it could mean: one may follow its kin."""
    places, missing = [package, PACKAGES, HOME], []
    for name in re.findall(r"[\w./-]+\.(?:py|json|md|toml)\b|\b\w+/(?=`|\s)", text):
        found = next((place / name for place in places if (place / name).exists()), None)
        if found is None:
            missing.append(name)
        elif found.parent not in places:
            places.append(found.parent)
    return missing


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.parent.name)
def test_the_readme_of_a_package_names_only_files_that_are_there(readme: Path) -> None:
    assert unknown_files(readme.parent, readme.read_text(encoding="utf-8")) == []


def test_the_hard_packages_explain_themselves() -> None:
    hard = {"attacks", "auditing", "discovery", "effects", "mechanisms", "orientation", "privacy", "synthesis", "table"}
    assert {path.parent.name for path in READMES} >= hard


def test_a_file_that_is_nowhere_would_be_seen() -> None:
    told = "`_purse.py`, `tests/unit/test_build.py` and `test_words.py`; not `_wallet.py`, `dpsdg/`"
    assert unknown_files(PACKAGES / "mechanisms", told) == ["_wallet.py", "dpsdg/"]
