"""What could be said against an effect: unmeasured causes, placebos, coins that are adjusted for, thin arms."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escudo.discovery import REFUTERS
from escudo.discovery._adjustment import e_value_of_shares, holds, with_coins
from escudo.discovery._effect_of import effect_of, prepare_effect
from escudo.discovery._treatment import e_value
from escudo.errors import InputError
from escudo.privacy import MemoryAccount, plan
from escudo.table import PrivateTable, Schema

ROWS = 20_000
COLUMNS: dict[str, object] = {
    "age": ["young", "middle", "old"],
    "dose": ["none", "low", "high"],
    "well": ["no", "yes"],
    "score": {"type": "numeric", "lower": 0, "upper": 70},
}


def frame_of(effect: float = 0.2, seed: int = 5) -> pl.DataFrame:
    """A drug in three doses that is given to those who fare worse anyway."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 3, ROWS)
    drug = rng.random(ROWS) < np.array([0.1, 0.5, 0.9])[age]
    dose = np.where(drug, rng.integers(1, 3, ROWS), 0)
    well = rng.random(ROWS) < np.array([0.7, 0.45, 0.1])[age] + effect * drug
    return pl.DataFrame(
        {
            "age": np.array(["young", "middle", "old"])[age],
            "dose": np.array(["none", "low", "high"])[dose],
            "well": np.where(well, "yes", "no"),
            "score": 20 + 10.0 * (2 - age) + 8 * drug + rng.normal(0, 4, ROWS),
        }
    )


@pytest.fixture(scope="module")
def table() -> PrivateTable:
    return PrivateTable(frame_of(), Schema.from_dict(COLUMNS))


# ---- coins


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.data(), st.sampled_from([1, 2]))
def test_a_row_more_adds_one_coin_and_changes_no_other(counts: list[int], data: st.DataObject, salt: int) -> None:
    before = np.array(counts, dtype=np.int64)
    after = before.copy()
    place = data.draw(st.integers(0, len(counts) - 1))
    after[place] += 1
    moved = with_coins(after, salt=salt) - with_coins(before, salt=salt)
    assert sorted(moved[place].tolist()) == [0, 1]
    assert not np.delete(moved, place, axis=0).any()
    assert (with_coins(before, salt=salt).sum(axis=-1) == before).all()


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=6), st.lists(st.integers(0, 9), min_size=6, max_size=6), st.data()
)
def test_steps_that_come_bring_their_coins_and_change_no_other(
    counts: list[int], more: list[int], data: st.DataObject
) -> None:
    """Whoever adds so many steps to each cell adds as many to either side together, and takes none away."""
    voice = data.draw(st.integers(1, 7))
    before, added = np.array(counts, dtype=np.int64), np.array(more[: len(counts)], dtype=np.int64)
    moved = with_coins(before + added, salt=1, voice=voice) - with_coins(before, salt=1, voice=voice)
    assert (moved >= 0).all()
    assert (moved.sum(axis=-1) == added).all()


def test_a_coin_is_for_one_voice() -> None:
    counts = np.full(4000, 25 * 64 + 7, dtype=np.int64)
    heads = with_coins(counts, salt=1, voice=64)[:, 0]
    assert set((heads % 64).tolist()) <= {0, 7}
    tossed = heads // 64
    assert tossed.mean() == pytest.approx(12.5, abs=4 * 2.5 / math.sqrt(4000))
    assert tossed.std() == pytest.approx(2.5, rel=0.05)
    assert (with_coins(counts, salt=1, voice=1) == with_coins(counts, salt=1)).all()


def test_coins_are_fair_and_independent_of_cells_ranks_and_each_other() -> None:
    counts = np.full((50, 40), 400, dtype=np.int64)
    heads = np.stack([with_coins(counts, salt=salt)[..., 0] for salt in (1, 2)]).astype(float)
    off = (heads - 200) / 10  # standard normal if fair
    assert abs(off.mean()) < 4 / math.sqrt(off.size)
    assert off.std() == pytest.approx(1.0, abs=0.05)
    assert abs((off[0] * off[1]).mean()) < 4 / math.sqrt(2000)  # the two kinds of coins
    assert abs((off[:, 1:] * off[:, :-1]).mean()) < 4 / math.sqrt(3900)  # neighbouring cells
    ones = np.stack([with_coins(np.full(4000, n), salt=1)[:, 0] for n in range(1, 9)])
    steps = np.diff(ones, axis=0, prepend=0) - 0.5  # the coins of the first eight rows of each cell
    correlation = 4 * steps @ steps.T / 4000
    assert np.abs(correlation - np.eye(8)).max() < 4.5 / math.sqrt(4000)


def test_many_rows_are_tossed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.array([3, 0, 1000, 17], dtype=np.int64)
    whole = with_coins(counts, salt=1)
    monkeypatch.setattr("escudo.discovery._adjustment._ROWS_AT_ONCE", 7)
    assert (with_coins(counts, salt=1) == whole).all()


# ---- refuters


@pytest.mark.parametrize("outcome", ["well", "score"])
@pytest.mark.parametrize("delta", [0.0, 1e-6], ids=["laplace", "gaussian"])
def test_refuters_are_paid_from_the_one_plan(table: PrivateTable, outcome: str, delta: float) -> None:
    asked = prepare_effect(
        table.schema, "dose", outcome, adjust=["age"], epsilon=0.8, delta=delta, refute=["random-cause", "placebo"]
    )
    assert [kind for kind, _ in asked.refuters] == list(REFUTERS)
    assert asked.plan.guarantee().epsilon == pytest.approx(0.8, rel=1e-3)
    assert asked.plan.guarantee().epsilon <= 0.8 * (1 + 1e-9)
    assert len(asked.plan.leaves()) == 3
    account = MemoryAccount(epsilon=1.0, delta=1e-5 if delta else 0.0)
    private = table.with_account(account)
    terms = {"adjust": ["age"], "epsilon": 0.8, "delta": delta, "refute": REFUTERS}
    shown = plan(effect_of, private, "dose", outcome, **terms)
    found = effect_of(private, "dose", outcome, **terms)
    assert [receipt.event for receipt in account.receipts] == [shown.event]
    assert found.guarantee.epsilon == pytest.approx(0.8, rel=1e-3)


@pytest.mark.parametrize("outcome", ["well", "score"])
def test_a_sound_analysis_passes_its_refuters(table: PrivateTable, outcome: str) -> None:
    passed = []
    for seed in range(12):
        found = effect_of(table, "dose", outcome, adjust=["age"], epsilon=3.0, refute=REFUTERS, seed=seed)
        placebo, cause = found.refutations
        passed += [placebo.passed, cause.passed]
        assert placebo.passed == (placebo.interval[0] <= 0 <= placebo.interval[1])
        assert abs(placebo.value) < 0.2 * abs(found.value)
        assert cause.value == pytest.approx(found.value, abs=0.35 * abs(found.value))
    assert sum(passed) >= 22


def test_an_interval_that_forgets_the_noise_fails_the_placebo(
    table: PrivateTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("escudo.discovery._adjustment.AdjustmentTable.noise_variance", 1.0)
    failed = 0
    for seed in range(12):
        found = effect_of(table, "dose", "well", adjust=["age"], epsilon=0.02, refute=["placebo"], seed=seed)
        failed += not found.refutations[0].passed
        assert ("should hold 0, and does not" in str(found.refutations[0])) == (not found.refutations[0].passed)
    assert failed >= 4


def test_a_cause_that_is_left_out_passes_the_refuters_and_the_answer_says_that_it_does(table: PrivateTable) -> None:
    found = effect_of(table, "dose", "well", trial=True, epsilon=3.0, refute=REFUTERS, seed=1)
    assert found.value < 0  # the drug goes to the old: with age it helps
    assert all(one.passed for one in found.refutations)
    assert any("with a common cause left out, it comes out just as well" in note for note in found.notes)
    without = effect_of(table, "dose", "well", trial=True, epsilon=3.0, seed=1)
    assert not any("comes out just as well" in note for note in without.notes)


def test_refuters_are_named_by_what_there_is(table: PrivateTable) -> None:
    with pytest.raises(InputError, match="placebo"):
        effect_of(table, "dose", "well", adjust=["age"], epsilon=1.0, refute=["bootstrap"])
    with pytest.raises(InputError, match="must be a list"):
        effect_of(table, "dose", "well", adjust=["age"], epsilon=1.0, refute="placebo")


# ---- unmeasured causes


def test_the_e_value_is_where_the_bounding_factor_reaches_the_ratio() -> None:
    for ratio in (1.2, 2.0, 3.9, 0.4):
        strength = e_value(ratio)
        bias = strength * strength / (2 * strength - 1)
        assert bias == pytest.approx(max(ratio, 1 / ratio))


def test_its_limit_is_the_end_of_the_ratios_interval_with_the_noise(table: PrivateTable) -> None:
    asked = prepare_effect(table.schema, "dose", "well", adjust=["age"], epsilon=0.05)
    found = effect_of(table, "dose", "well", adjust=["age"], epsilon=0.05, seed=1)
    quiet = effect_of(table, "dose", "well", adjust=["age"], epsilon=50.0, seed=1)
    one, other = found.contrasts[0].e_value, quiet.contrasts[0].e_value
    assert one is not None
    assert other is not None
    assert 1 < one.limit < one.estimate
    assert one.estimate - one.limit > 2 * (other.estimate - other.limit)  # noise takes from it
    strata = asked.table.measure(table, _purse(1)).only(list(asked.contrast))
    bias = one.limit**2 / (2 * one.limit - 1)  # back to the ratio
    assert not holds(strata, np.array([-bias * 0.99, 1.0]), 0.0, critical=asked._critical)
    assert holds(strata, np.array([-bias * 1.02, 1.0]), 0.0, critical=asked._critical)


def _purse(seed: int) -> object:
    from escudo.mechanisms import Purse

    return Purse(None, seed)


def test_a_confounder_below_the_limit_cannot_make_the_effect() -> None:
    """Without any effect, a hidden cause of known strength makes one; the limit never asks for a stronger one."""
    rng = np.random.default_rng(1)
    schema = Schema.from_dict({"t": ["no", "yes"], "y": ["no", "yes"]})
    strength = 3.0
    for seed in range(10):
        hidden = rng.random(30_000) < 0.5
        treated = rng.random(30_000) < np.where(hidden, 0.2 * strength, 0.2)
        outcome = rng.random(30_000) < np.where(hidden, 0.25 * strength, 0.25)
        frame = pl.DataFrame({"t": np.where(treated, "yes", "no"), "y": np.where(outcome, "yes", "no")})
        found = effect_of(PrivateTable(frame, schema), "t", "y", adjust=[], epsilon=1.0, seed=seed)
        robust = found.contrasts[0].e_value
        assert robust is not None
        assert 1 < robust.limit <= strength
    assert f"{robust.limit:.3g}-fold" in found.robustness


def test_nothing_is_needed_to_explain_away_what_cannot_be_told(table: PrivateTable) -> None:
    found = effect_of(table, "dose", "well", adjust=["age"], epsilon=0.002, seed=2)
    assert not found.contrasts[0].sign_known
    assert found.contrasts[0].e_value is not None
    assert found.contrasts[0].e_value.limit == 1
    assert "not needed" in found.robustness


def test_in_a_trial_there_is_no_unmeasured_cause(table: PrivateTable) -> None:
    found = effect_of(table, "dose", "well", trial=True, epsilon=1.0, seed=1)
    assert found.contrasts[0].e_value is None
    assert found.robustness == ""


@pytest.mark.parametrize("delta", [0.0, 1e-6], ids=["laplace", "gaussian"])
def test_of_a_number_it_goes_by_standard_deviations(table: PrivateTable, delta: float) -> None:
    spread = float(frame_of()["score"].std())
    expected = e_value(math.exp(0.91 * 8 / spread))
    found = effect_of(table, "dose", "score", adjust=["age"], epsilon=5.0, delta=delta, seed=1).contrasts[0].e_value
    assert found is not None
    assert found.estimate == pytest.approx(expected, rel=0.1)
    assert 1 < found.limit < expected


def test_an_outcome_that_never_happens_has_a_finite_e_value() -> None:
    frame = pl.DataFrame({"t": ["no", "yes"] * 4000, "y": ["no", "yes"] * 4000})
    schema = Schema.from_dict({"t": ["no", "yes"], "y": ["no", "yes"]})
    found = effect_of(PrivateTable(frame, schema), "t", "y", adjust=[], epsilon=5.0, seed=3)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["contrasts"][0]["e_value"]["limit"] > 100
    strata = prepare_effect(schema, "t", "y", adjust=[], epsilon=5.0).table.measure(
        PrivateTable(frame, schema), _purse(3)
    )
    assert e_value_of_shares(strata, (0.0, 0.0), critical=3.84, sign_known=False).limit == 1


# ---- overlap, arms, all contrasts at once


def test_overlap_is_told_by_stratum(table: PrivateTable) -> None:
    found = effect_of(table, "dose", "well", adjust=["age"], epsilon=1.0, contrast=("none", "high"), seed=1)
    by_name = {one.name: one for one in found.overlap}
    assert by_name["age = young"].arms == pytest.approx((0.9, 0.05, 0.05), abs=0.02)
    assert by_name["age = old"].arms == pytest.approx((0.1, 0.45, 0.45), abs=0.02)
    assert sum(one.share for one in found.overlap) == pytest.approx(1.0)
    assert found.compared == pytest.approx(1.0)
    assert found.overlap_sentence.startswith("Both dose = none and high are seen where 100% of the rows lie; thinnest")
    assert "age = young: 5% have high" in found.overlap_sentence


def test_where_an_arm_is_lost_the_rest_is_what_can_be_compared() -> None:
    rng = np.random.default_rng(1)
    old = rng.random(20_000) < 0.3
    drug = ~old & (rng.random(20_000) < 0.5)
    frame = pl.DataFrame({"old": old, "drug": drug, "well": rng.random(20_000) < 0.5})
    schema = Schema.from_dict({name: {"type": "boolean"} for name in ("old", "drug", "well")})
    found = effect_of(PrivateTable(frame, schema), "drug", "well", adjust=["old"], epsilon=1.0, seed=1)
    assert found.compared == pytest.approx(0.7, abs=0.02)


def test_joint_intervals_are_wider_and_say_so(table: PrivateTable) -> None:
    terms = {"adjust": ["age"], "epsilon": 1.0, "contrast": ("none", "low"), "seed": 4}
    each, together = (effect_of(table, "dose", "well", joint=joint, **terms) for joint in (False, True))
    for one, other in zip(each.contrasts, together.contrasts, strict=True):
        assert other.interval[0] < one.interval[0] < one.interval[1] < other.interval[1]
        assert one.value == other.value
    assert any("holds its own truth 95%" in note for note in each.notes)
    assert any("all their truths together 95%" in note for note in together.notes)
    assert together.to_json()["joint"] is True
