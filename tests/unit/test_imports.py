"""Nothing heavy is loaded until it is used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import escudo

HEAVY = {
    "dp_accounting",
    "duckdb",
    "jax",
    "jinja2",
    "matplotlib",
    "mbi",
    "narwhals",
    "networkx",
    "numpy",
    "opendp",
    "pandas",
    "polars",
    "pyarrow",
    "scipy",
    "sklearn",
    "sqlalchemy",
    "yaml",
}
BIGGEST = {"dp_accounting", "jax", "matplotlib", "opendp", "pandas", "pyarrow", "duckdb", "sklearn", "sqlalchemy"}


def loaded_after(code: str) -> set[str]:
    """Return the top-level modules a fresh interpreter holds after running ``code``."""
    program = (
        f"{code}\nimport sys, json\n"
        "sys.__stdout__.write('\\n' + json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_import_escudo_loads_nothing_heavy() -> None:
    assert not loaded_after("import escudo") & HEAVY


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['escudo', '--help']\nfrom escudo.cli import main\ntry: main()\nexcept SystemExit: pass"
    )
    assert not loaded_after(code) & {*HEAVY, "email", "zipfile"}


@pytest.mark.parametrize("name", ["Guarantee", "CausalGraph", "Schema"])
def test_one_noun_does_not_load_the_largest_libraries(name: str) -> None:
    assert not loaded_after(f"import escudo; escudo.{name}") & BIGGEST


def test_a_page_loads_only_what_it_shows() -> None:
    code = (
        "import sys; from escudo.report import effects_page\n"
        "print({'escudo.synthesis', 'escudo.utility'} & {*sys.modules})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_a_small_release_loads_only_what_it_uses(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "0,1\n1,1\n1,0\n" * 200)
    (tmp_path / "t.toml").write_text('[columns]\na = ["0", "1"]\nb = ["0", "1"]\n')
    code = (
        f"import os, sys; os.chdir({str(tmp_path)!r})\n"
        "sys.argv = 'escudo release t.csv --schema t.toml --epsilon 1 --out out'.split()\n"
        "from escudo.cli import main\ntry: main()\nexcept SystemExit: pass\n"
        "print(*sorted(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.splitlines()[-1].split())
    assert "escudo.report._release_folder" in loaded
    unused = {"attacks", "auditing", "discovery", "effects", "orientation", "report._custodian", "utility._private"}
    assert not {f"escudo.{name}" for name in unused} & loaded
    assert not {"dp_accounting", "duckdb", "jax", "networkx", "pandas", "sklearn", "sqlalchemy", "yaml"} & loaded
    assert not {"scipy.optimize", "scipy.signal", "scipy.stats"} & loaded
    assert len(loaded) < 1300  # about 1,150 where this was written, of which 150 are ours


def test_every_name_that_is_offered_is_there() -> None:
    for package in (escudo, escudo.report, escudo.utility):
        assert all(getattr(package, name) is not None for name in package.__all__)
        assert {*package.__all__} <= {*dir(package)}
    with pytest.raises(AttributeError, match="nothing"):
        escudo.nothing  # noqa: B018


def test_the_check_itself_sees_a_heavy_import() -> None:
    assert "numpy" in loaded_after("import numpy")
