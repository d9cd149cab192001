"""In a notebook every answer shows itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import escudo
from escudo._card import CUSTODIAN_ONLY, card
from escudo.attacks import AttributeAttack
from escudo.auditing import one_run, replay
from escudo.auditing.museum import Piece
from escudo.causal import SEM, CausalGraph, Network
from escudo.discovery import Discovery
from escudo.effects import definitions, semantic_privacy, survey
from escudo.mechanisms import laplace
from escudo.privacy import Event, Guarantee, Verification
from escudo.report import write_release
from escudo.synthesis import CausalModel, EffectRange, ModelEffect, stability
from escudo.table import Schema, check
from escudo.utility import CausalFidelity, Fidelity, PrivateEvaluation

NO_CARD = {
    "a line of a list, or a part of a result that has one": """
        AttackedTarget Ceiling Score PublishedScore History Outputs Power Step Finding Arm Contrast Measured Definition
        Implication SurveyRow Witness Change Prediction NodeStability ParameterChange ColumnCheck PersonCheck FileCheck
        AccountInfo LedgerRow Receipt RunningTotal Disclosure EValue Refutation Stratum SuiteEntry Passes LinkedFidelity
    """,
    "what a question or a model is made of": """
        Equation Factor Given Knowledge Law Lookup Diagram Node Procedure LinearConditional LogitConditional
        MaxConditional NoisyOrConditional TableConditional Categorical Numeric CountSensitivity Exhibit Layout Recipe
        Training Prepared PreparedEvaluated Autoregressive Vae Budget Neighbours AttributeGame PublishedGame
        ReleaseWriting Suite Opening LinkedWriting LinkedTable ChildTable RowModel Clinic Plates
    """,
    "a number or two inside a release, which shows them": "LogIqr Threshold Verdict",
    "private rows, which show only how many they are": "Rows",
}
"""Public dataclasses that show themselves as plain text, by reason. Events and museum pieces are facts, too."""

NASTY = "<script>alert('x')</script>"


def _public_classes() -> Iterator[tuple[str, type]]:
    """Yield every class that some public package names as its own."""
    for module in pkgutil.walk_packages(escudo.__path__, "escudo."):
        if module.ispkg and "._" not in module.name and not module.name.startswith("escudo.cli"):
            package = importlib.import_module(module.name)
            for name in getattr(package, "__all__", ()):
                if isinstance(kind := getattr(package, name), type):
                    yield name, kind


def _has_card(kind: type) -> bool:
    return callable(getattr(kind, "_repr_html_", None) or getattr(kind, "_repr_svg_", None))


def test_every_public_dataclass_has_a_card_or_a_reason() -> None:
    bare = {
        name
        for name, kind in _public_classes()
        if is_dataclass(kind) and not issubclass(kind, Event | Piece) and not _has_card(kind)
    }
    excused = {name for names in NO_CARD.values() for name in names.split()}
    assert bare == excused  # a new result needs a card; a reason without a class is out of date


def test_what_the_verbs_return_shows_itself() -> None:
    known = dict(_public_classes())
    for name in ("PrivateTable", "Ledger", "Definitions", "Distribution", "CausalGraph", "NeuralModel", "ReleaseFiles"):
        assert _has_card(known[name]), name


def test_a_card_escapes_what_it_is_given_and_cuts_what_is_long(outline: Any) -> None:
    made = card(NASTY, NASTY * 100, head=[NASTY], rows=[[NASTY]] * 30, note=NASTY)
    read = outline(made)
    assert read.scripts == 0
    assert "and 10 more" in read.text
    assert len(made) < 10_000


SURVEY = SEM.build(
    exogenous={"R1": {"neg": 0.9, "pos": 0.1}},
    equations={"D1": ("R1", lambda r1: r1), "O": "randomised_response(D1, epsilon = ln(3))"},
)
MECHANISM = [[0.75, 0.25], [0.25, 0.75]]


def _noisy_total(rows: list[int], rng: Any) -> float:
    return laplace(sum(rows), sensitivity=1, epsilon=1.0, seed=rng).value


def _model_effect() -> ModelEffect:
    return ModelEffect(
        treatment=NASTY,
        outcome="ill",
        levels=("no", "yes"),
        outcome_levels=("no", NASTY),
        law=((0.9, 0.1), (0.8, 0.2)),
        means=None,
    )


def _fidelity() -> Fidelity:
    return Fidelity(
        one_way=0.0123,
        two_way=0.05,
        three_way=None,
        worst=(((NASTY, "b"), 0.1),),
        correlation=None,
        mean=0.01,
        deviation=0.02,
        detection=0.55,
    )


def _attribute_attack() -> AttributeAttack:
    claim = Guarantee(epsilon=1.0)
    return AttributeAttack(
        attribute=NASTY, right=0.6, without=0.5, advantage=0.1, audits=(), claim=claim, ceiling=None, fits=10
    )


PUBLIC: dict[str, tuple[Callable[[], Any], str]] = {
    "SEM": (lambda: SURVEY, "<svg"),
    "Distribution": (lambda: SURVEY.probability("O", do={"D1": "pos"}), "0.75"),
    "Network": (lambda: Network(levels={NASTY: ("a", "b")}, parents={}, tables={NASTY: [0.5, 0.5]}), "<svg"),
    "Survey": (lambda: survey(SURVEY), "1.10"),
    "Definitions": (lambda: definitions(MECHANISM), "Strong adversary"),
    "SemanticPrivacy": (lambda: semantic_privacy(MECHANISM), "percentage points"),
    "Release": (lambda: laplace(3, sensitivity=1, epsilon=1.0), "replace one row"),
    "Verification": (lambda: Verification(rows=3, head="ab12"), "head ab12"),
    "broken Verification": (lambda: Verification(rows=3, head="ab12", problem=f"row 4: {NASTY}"), "row 4"),
    "OneRun": (lambda: one_run(np.arange(50.0), np.arange(50) % 2, delta=1e-5), "50 canaries"),
    "Replay": (lambda: replay(_noisy_total, [([0, 5], [10, 5])]), "VIOLATED"),
    "ModelEffect": (_model_effect, "80.0%"),
    "EffectRange": (
        lambda: EffectRange(effects=(_model_effect(),) * 2, causes=((), (NASTY,))),
        "if its causes are none",
    ),
    "CausalFidelity": (
        lambda: CausalFidelity(intervention=0.0321, effect=None, questions=7, worst=(((NASTY, "a", "b"), 0.2),)),
        "3.21%",
    ),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_the_card_of_a_public_result_shows_the_finding(name: str, outline: Any) -> None:
    make, finding = PUBLIC[name]
    shown = make()._repr_html_()
    assert finding in shown
    assert outline(shown).scripts == 0
    assert CUSTODIAN_ONLY not in shown


def test_the_card_of_a_seeded_release_says_that_it_is_not_for_release() -> None:
    assert "not for release" in laplace(3, sensitivity=1, epsilon=1.0, seed=1)._repr_html_()
    assert "not for release" not in laplace(3, sensitivity=1, epsilon=1.0)._repr_html_()


def _stability() -> Any:
    rng = np.random.default_rng(0)
    cause = rng.uniform(-1, 1, 200)
    graph = CausalGraph.from_edges([("cause", "effect")])
    return stability(graph, {"cause": cause, "effect": cause + rng.uniform(-1, 1, 200)})


CUSTODIAN: dict[str, Callable[[], Any]] = {
    "Fidelity": _fidelity,
    "AttributeAttack": _attribute_attack,
    "Stability": _stability,
}


@pytest.mark.parametrize("name", CUSTODIAN)
def test_a_card_of_something_private_says_whom_it_is_for(name: str, outline: Any) -> None:
    shown = CUSTODIAN[name]()._repr_html_()
    assert CUSTODIAN_ONLY in shown
    assert outline(shown).scripts == 0


def test_the_card_of_a_schema_check_holds_nothing_that_its_repr_does_not() -> None:
    import polars as pl

    schema = Schema.from_dict({"age": {"type": "numeric", "lower": 0, "upper": 10}, "ward": ["a", "b"]})
    found = check(pl.DataFrame({"age": [5.0, 77.0, 77.0, 77.0], "ward": ["a", "a", "a", "zzz"]}), schema)
    assert found.columns[0].outside == 0.75
    for secret in ("75", "25", "zzz", "77"):
        assert secret not in repr(found)
        assert secret not in found._repr_html_()
    assert "custodian's eyes only" in found._repr_html_().replace("&#x27;", "'")


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
    assert 0 < read.text.index("90 %") < read.text.index("60 %")
    assert "Cannot tell more" in read.text
    assert str(made.guarantee)[:40] in read.text
