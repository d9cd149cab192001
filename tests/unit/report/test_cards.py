"""In a notebook every answer shows itself."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from escudo.causal import CausalGraph
from escudo.discovery import Discovery
from escudo.report import write_release
from escudo.synthesis import CausalModel
from escudo.utility import PrivateEvaluation

RESULTS = {
    "attacks": ["Attack"],
    "auditing": ["Audit"],
    "causal": ["CausalGraph"],
    "discovery": ["Discovery", "TreatmentEffect"],
    "effects": ["Effect"],
    "orientation": ["Direction", "Orientation"],
    "privacy": ["Guarantee", "Ledger", "Plan"],
    "report": ["ReleaseFiles"],
    "synthesis": ["CausalModel", "LinearModel", "NeuralModel"],
    "table": ["PrivateTable", "Schema"],
    "utility": ["Evaluation", "PrivateEvaluation"],
}
"""What the verbs of each package return."""

NASTY = "<script>alert('x')</script>"


@pytest.mark.parametrize(("package", "name"), [(package, name) for package in RESULTS for name in RESULTS[package]])
def test_every_result_has_a_card(package: str, name: str) -> None:
    module = importlib.import_module(f"escudo.{package}")
    assert name in module.__all__
    kind = getattr(module, name)
    assert callable(getattr(kind, "_repr_html_", None) or getattr(kind, "_repr_svg_", None))


def test_a_release_shows_its_parts_and_what_not_to_hand_over(
    model: CausalModel, paid: PrivateEvaluation, tmp_path: Path
) -> None:
    files = write_release(model, tmp_path / "a & b", rows=10, evaluate=lambda rows: paid)
    card = files._repr_html_()
    assert "Released to a &amp; b" in card
    assert "report.html" in card
    assert "synthetic.csv" not in card
    assert "78.9 %" in card
    assert "NOT FOR RELEASE" not in card
    assert "NOT FOR RELEASE" in replace(files, custodian=tmp_path / "a-custodian.html")._repr_html_()


@pytest.mark.parametrize("names", [("a", "b"), (NASTY, "b")], ids=["plain", "nasty"])
def test_a_discovery_shows_its_edges_the_surest_first(
    model_of: Callable[..., CausalModel], outline: Any, names: tuple[str, str]
) -> None:
    made = model_of()
    first, second = names
    graph = CausalGraph.from_edges([(first, second), ("c", second)])
    found = Discovery(
        graph=graph,
        generating_graph=graph,
        edge_confidence={tuple(sorted((first, second))): 0.6, tuple(sorted(("c", second))): 0.9},
        method="exact",
        plan=made.plan,
        guarantee=made.guarantee,
        rows=100,
        cannot_tell=NASTY,
    )
    read = outline(found._repr_html_())
    assert read.scripts == 0
    assert read.text.index(f"c → {second} 90%") < read.text.index(f"{first} → {second} 60%")
    assert "Cannot tell more" in read.text
    assert str(made.guarantee)[:40] in read.text
