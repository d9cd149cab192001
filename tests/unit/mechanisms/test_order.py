"""Every mechanism checks, then charges, then draws; and says so when it fails."""

from __future__ import annotations

import math

import numpy as np
import pytest

from escudo import mechanisms
from escudo.errors import BudgetExceededError, InputError, LedgerError
from escudo.mechanisms import Purse, watching
from escudo.privacy import MemoryAccount

VALUES = np.arange(40.0)

# name -> a call that passes shared keywords on
MECHANISMS = {
    "laplace": lambda **kw: mechanisms.laplace([1, 2], **{"sensitivity": 1, "epsilon": 1.0} | kw),
    "laplace of reals": lambda **kw: mechanisms.laplace(1.5, **{"sensitivity": 1.0, "epsilon": 1.0} | kw),
    "gaussian": lambda **kw: mechanisms.gaussian([1, 2], l2_sensitivity=1, rho=0.5, **kw),
    "exponential": lambda **kw: mechanisms.exponential([1, 2], **{"sensitivity": 1, "epsilon": 1.0} | kw),
    "permute_and_flip": lambda **kw: mechanisms.permute_and_flip([1, 2], **{"sensitivity": 1, "epsilon": 1.0} | kw),
    "quantiles": lambda **kw: mechanisms.quantiles(VALUES, 0.5, lower=0, upper=50, **{"epsilon": 1.0} | kw),
    "quantile_cells": lambda **kw: mechanisms.quantile_cells([3, 4], [0.2, 0.8], **{"epsilon": 1.0} | kw),
    "gap_sign": lambda **kw: mechanisms.gap_sign(0.2, **{"sensitivity": 0.1, "epsilon": 1.0} | kw),
    "votes": lambda **kw: mechanisms.votes([1, -1, 1], **{"epsilon": 1.0} | kw),
    "propose_test_release": lambda **kw: mechanisms.propose_test_release(
        0.5, 90, **{"sensitivity": 0.1, "epsilon": 1.0, "delta": 1e-6} | kw
    ),
    "log_iqr": lambda **kw: mechanisms.log_iqr([VALUES], lower=0, upper=50, **{"epsilon": 1.0, "delta": 1e-6} | kw),
    "stable_histogram": lambda **kw: mechanisms.stable_histogram(
        {"a": 90, "b": 1}, **{"epsilon": 1.0, "delta": 1e-6} | kw
    ),
}
every_mechanism = pytest.mark.parametrize("call", MECHANISMS.values(), ids=MECHANISMS.keys())


def all_but(*names):
    chosen = {name: call for name, call in MECHANISMS.items() if name not in names}
    return pytest.mark.parametrize("call", chosen.values(), ids=chosen.keys())


@every_mechanism
@pytest.mark.parametrize("seed", [None, 5])
def test_the_account_is_charged_once_before_any_noise_is_drawn(call, watched_noise, seed):
    release = call(account=watched_noise, seed=seed, purpose="a test")
    assert watched_noise.words[0] == "spent"
    assert watched_noise.words.count("spent") == 1
    assert "drew" in watched_noise.words
    assert watched_noise.entries[0][1:] == (release.event, "a test", seed is None)


@every_mechanism
def test_a_keyword_that_nobody_knows_is_refused_before_anything_is_spent(call, watched_noise):
    with pytest.raises(TypeError, match="porpuse"):
        call(account=watched_noise, porpuse="a slip")
    assert watched_noise.words == []


@every_mechanism
def test_nothing_is_drawn_when_the_account_refuses(call, watched_noise, refusing):
    with pytest.raises(BudgetExceededError):
        call(account=refusing)
    assert refusing.words == ["refused"]
    assert watched_noise.words == []


@every_mechanism
def test_a_failure_after_the_charge_is_marked_without_the_errors_own_words(call, diary, broken_noise):
    with pytest.raises(RuntimeError):
        call(account=diary)
    assert diary.words == ["spent", "failed"]
    assert diary.entries[1] == ("failed", "receipt 1", "RuntimeError")


def test_a_failure_that_cannot_be_marked_does_not_hide_its_reason(diary, broken_noise, monkeypatch):
    def no_ledger(receipt, reason):
        raise LedgerError("the disk is full.")

    monkeypatch.setattr(diary, "fail", no_ledger)
    with pytest.raises(RuntimeError) as raised:
        MECHANISMS["laplace"](account=diary)
    assert raised.value.__notes__ == ["The spend could not be marked as failed in the account: the disk is full."]


@every_mechanism
def test_a_failure_without_an_account_is_just_raised(call, broken_noise):
    with pytest.raises(RuntimeError):
        call()


@every_mechanism
@pytest.mark.parametrize("seed", [-1, 1.5, True, "7"])
def test_an_unusable_seed_is_refused_before_the_charge(call, diary, seed):
    with pytest.raises(InputError, match="seed"):
        call(account=diary, seed=seed)
    assert diary.words == []


@every_mechanism
def test_secure_noise_is_for_release_and_seeded_noise_is_not(call):
    assert call().guarantee.for_release
    assert not call(seed=1).guarantee.for_release


@every_mechanism
def test_a_seed_makes_it_repeatable_and_a_generator_moves_on(call):
    assert repr(call(seed=3).value) == repr(call(seed=3).value)
    generator = np.random.default_rng(0)
    before = generator.bit_generator.state
    call(seed=generator)
    assert generator.bit_generator.state != before


@every_mechanism
def test_the_event_is_stated_for_the_relation_and_the_guarantee_follows_it(call):
    release = call(seed=1)
    assert release.event.relation == release.guarantee.relation == "replace_one"
    assert release.event.unit == release.guarantee.unit == "row"


@all_but("gaussian")
@pytest.mark.parametrize("epsilon", [0, 0.0, -1.0, math.nan, math.inf, 1e9, 1e-300, "1", None, True])
def test_an_unusable_epsilon_is_refused_before_the_charge(call, diary, epsilon):
    with pytest.raises(InputError):
        call(account=diary, epsilon=epsilon)
    assert diary.words == []


@all_but("gaussian")
def test_the_guarantee_is_no_more_than_the_epsilon_asked_for(call):
    for epsilon in (0.1, 1 / 3, 1.0, 2.7):
        guarantee = call(epsilon=epsilon, seed=1).guarantee
        assert guarantee.epsilon_at(max(guarantee.delta, 1e-6)) <= epsilon


@pytest.mark.parametrize("name", ["propose_test_release", "log_iqr", "stable_histogram"])
@pytest.mark.parametrize("delta", [0, 1.0, 1.5, -1e-9, math.nan])
def test_an_unusable_delta_is_refused_before_the_charge(name, diary, delta):
    with pytest.raises(InputError, match="delta"):
        MECHANISMS[name](account=diary, delta=delta)
    assert diary.words == []


@pytest.mark.parametrize(
    "name", ["laplace", "laplace of reals", "exponential", "permute_and_flip", "gap_sign", "propose_test_release"]
)
@pytest.mark.parametrize("sensitivity", [0, -1.0, math.nan, math.inf, 5e-324, "1", None])
def test_an_unusable_sensitivity_is_refused_before_the_charge(name, diary, sensitivity):
    with pytest.raises(InputError):
        MECHANISMS[name](account=diary, sensitivity=sensitivity)
    assert diary.words == []


@all_but("log_iqr")  # it protects rows only: its distances count records
def test_a_person_needs_a_bound_on_rows_and_passes_it_on(call):
    with pytest.raises(InputError, match="max_rows_per_person"):
        call(unit="person")
    release = call(unit="person", max_rows_per_person=4, seed=1)
    assert (release.event.unit, release.guarantee.max_rows_per_person) == ("person", 4)


def test_the_accounts_bound_on_rows_is_the_default():
    account = MemoryAccount(unit="person", max_rows_per_person=7)
    release = MECHANISMS["laplace"](unit="person", account=account)
    assert release.guarantee.max_rows_per_person == 7


@all_but("gaussian", "quantile_cells")
def test_a_budget_can_be_spent_to_the_end_and_not_beyond(call):
    for epsilon in (0.1, 1 / 3, 1.0):
        account = MemoryAccount(epsilon=3 * epsilon, delta=3e-6, spending="planned")
        for _ in range(3):
            call(account=account, epsilon=epsilon)
        with pytest.raises(BudgetExceededError):
            call(account=account, epsilon=epsilon)
        assert len(account.receipts) == 3


def test_a_release_is_frozen_and_shows_value_guarantee_and_event():
    release = MECHANISMS["laplace"](seed=1)
    with pytest.raises(AttributeError):
        release.value = 3
    assert release.guarantee.epsilon == pytest.approx(1.0)


class TestSeveralReleasesOfOneEvent:
    TABLES = ([1, 2], 7, [[3, 4], [5, 6]])
    PURPOSES = ("one", "two", "three")
    EVENT = mechanisms.gaussian_event(2, l2_sensitivity=1, scale=5.0, integers=True)

    def test_secure_noise_is_drawn_at_once_after_every_charge(self, watched_noise):
        found = Purse(watched_noise).add_each(self.TABLES, self.EVENT, self.PURPOSES)
        assert watched_noise.words == ["spent", "spent", "spent", "drew"]
        assert [entry[1:3] for entry in watched_noise.entries[:3]] == [(self.EVENT, each) for each in self.PURPOSES]
        assert [np.shape(each) for each in found] == [(2,), (), (2, 2)]

    def test_seeded_noise_is_that_of_one_draw_after_the_other(self, watched_noise):
        one_by_one = Purse(seed=3)
        expected = [one_by_one.add(each, self.EVENT) for each in self.TABLES]
        found = Purse(watched_noise, seed=3).add_each(self.TABLES, self.EVENT, self.PURPOSES)
        assert all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))
        assert watched_noise.words[3:] == ["spent", "drew"] * 3

    def test_a_watcher_sees_every_release(self):
        seen = []

        def watch(source, event):
            seen.append(event)
            return source

        with watching(watch):
            Purse().add_each(self.TABLES, self.EVENT, self.PURPOSES)
        assert seen == [self.EVENT] * 3

    def test_nothing_is_drawn_when_the_account_refuses_one_of_them(self, watched_noise, monkeypatch):
        spend = watched_noise.spend

        def twice(event, **how):
            watched_noise.refuse = watched_noise.words.count("spent") == 2
            return spend(event, **how)

        monkeypatch.setattr(watched_noise, "spend", twice)
        with pytest.raises(BudgetExceededError):
            Purse(watched_noise).add_each(self.TABLES, self.EVENT, self.PURPOSES)
        assert watched_noise.words == ["spent", "spent", "refused", "failed", "failed"]

    def test_all_of_them_are_marked_if_drawing_fails(self, diary, broken_noise):
        with pytest.raises(RuntimeError):
            Purse(diary).add_each(self.TABLES, self.EVENT, self.PURPOSES)
        assert diary.words == ["spent", "spent", "spent", "failed", "failed", "failed"]

    def test_values_of_another_grid_are_refused_before_anything_is_spent(self, diary):
        with pytest.raises(InputError, match="must be of integers"):
            Purse(diary).add_each([[1, 2], [0.5]], self.EVENT, ("one", "two"))
        assert diary.words == []

    @pytest.mark.parametrize("seed", [None, 11])
    def test_each_number_has_noise_of_its_own_with_the_scale_of_the_event(self, seed):
        # A sum of squares of 3,000 standard normal numbers is within 5 of its standard deviations but once in 10^6;
        # so is the correlation of 1,000 pairs within 5/√1000.
        tables = [np.full(3, 100 * place) for place in range(1000)]
        found = Purse(seed=seed).add_each(tables, self.EVENT, [""] * 1000)
        noise = np.array([np.asarray(one) - other for one, other in zip(found, tables, strict=True)])
        assert abs(np.sum((noise / self.EVENT.scale) ** 2) - 3000) < 5 * math.sqrt(6000)
        assert np.abs(np.corrcoef(noise.T)[np.triu_indices(3, 1)]).max() < 5 / math.sqrt(1000)
        assert abs(np.corrcoef(noise[1:, 0], noise[:-1, 2])[0, 1]) < 5 / math.sqrt(999)
