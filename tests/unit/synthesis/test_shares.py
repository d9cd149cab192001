"""How often levels occur, by what was seen of each and what levels are like: within limits, and better than alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

from escudo.synthesis._shares import likely_margins, likely_shares, nearest_margins

Floats = NDArray[np.float64]


def seen_of(laws: dict[str, Floats], sigma: float, seed: int) -> dict[str, Floats]:
    rng = np.random.default_rng(seed)
    return {name: law + rng.normal(0, sigma, law.size) for name, law in laws.items()}


def settled(seen: dict[str, Floats], sigma: float, total: float = 1.0) -> dict[str, Floats]:
    return likely_margins(seen, {name: np.full(each.size, sigma) for name, each in seen.items()}, total)


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=5),
    st.sampled_from([1e-6, 0.01, 0.1, 1.0, 30.0]),
    st.sampled_from([0.0, 1.0, 800.0]),
    st.integers(0, 2**16),
)
def test_margins_add_up_and_none_is_negative_or_moved_further_than_its_limit(sizes, sigma, total, seed):
    rng = np.random.default_rng(seed)
    rows = max(total, 1.0)
    laws = {f"x{place}": rows * rng.dirichlet(np.full(size, 0.5)) for place, size in enumerate(sizes)}
    seen = seen_of(laws, sigma * rows, seed)
    for name, margin in settled(seen, sigma * rows, total).items():
        size = margin.size
        assert margin.sum() == pytest.approx(total)
        assert (margin >= 0).all()
        if total == 0 or size == 1:
            continue
        known = seen[name] + (total - seen[name].sum()) / size
        limit = sigma * total * np.sqrt(1 - 1 / size) * max(norm.ppf(1 - 4 / size) if size > 8 else 0, 1)
        assert (margin <= np.maximum(known + limit, 0) + 1e-6 * total).all()
        if np.maximum(known - limit, 0).sum() <= total:
            assert (margin >= known - limit - 1e-6 * total).all()
        else:
            np.testing.assert_allclose(margin, nearest_margins(known[None], total)[0], atol=1e-6 * total)


def test_what_is_seen_without_noise_stays_as_it_is():
    laws = {"a": np.array([0.2, 0.8]), "b": np.array([0.0, 0.001, 0.999]), "c": np.full(40, 1 / 40)}
    for name, margin in settled(laws, 1e-9).items():
        np.testing.assert_allclose(margin, laws[name], atol=1e-8)


def test_the_order_of_columns_and_of_levels_does_not_matter():
    rng = np.random.default_rng(2)
    laws = {"a": rng.dirichlet(np.ones(5)), "b": rng.dirichlet(np.ones(12)), "c": rng.dirichlet(np.ones(2))}
    seen = seen_of(laws, 0.05, seed=3)
    found = settled(seen, 0.05)
    turned = settled({name: seen[name][::-1] for name in ("c", "a", "b")}, 0.05)
    assert list(turned) == ["c", "a", "b"]
    for name, margin in found.items():
        np.testing.assert_allclose(turned[name][::-1], margin, atol=1e-9)


@pytest.mark.parametrize(
    ("shape", "sigma", "part"),
    [
        ("alike", 0.1, 0.7),  # nine columns of eight levels, as often as each other
        ("goods", 0.02, 0.4),  # five hundred goods
        ("falling", 0.05, 0.9),
        ("two levels", 0.03, 1.15),  # ten columns: hardly anything is to be learnt from them, and little may be lost
    ],
)
def test_errors_are_smaller_than_of_the_nearest_shares(shape, sigma, part):
    # Means over 20 releases: the ratio of two of them has a standard deviation of 2 to 4 % here.
    rng = np.random.default_rng(4)
    falling = np.arange(1.0, 31) ** -1.1
    laws = {
        "alike": [np.full(8, 1 / 8)] * 9,
        "goods": [np.full(500, 1 / 500)],
        "falling": [rng.permutation(falling / falling.sum()) for _ in range(4)],
        "two levels": [np.array([p, 1 - p]) for p in rng.beta(0.5, 0.5, 10)],
    }[shape]
    named = {f"x{place}": law for place, law in enumerate(laws)}
    ours, nearest = [], []
    for seed in range(20):
        seen = seen_of(named, sigma, seed)
        found = settled(seen, sigma)
        ours.append(np.mean([np.abs(found[name] - law).sum() for name, law in named.items()]))
        nearest.append(np.mean([np.abs(nearest_margins(seen[n][None], 1.0) - law).sum() for n, law in named.items()]))
    assert np.mean(ours) <= part * np.mean(nearest)


def test_a_share_unlike_all_others_is_right_on_average_to_its_noise():
    # Off by up to 1.09 of its noise, and by chance by 0.07 in the mean of 200. Without limits it is off by more.
    sigma, laws = 0.15, [np.r_[0.4, np.full(19, 0.6 / 19)], *[np.full(20, 0.05)] * 29]
    law = {f"x{place}": each for place, each in enumerate(laws)}
    seen = [seen_of(law, sigma, seed) for seed in range(200)]
    off = np.mean([settled(each, sigma)["x0"] for each in seen], axis=0) - law["x0"]
    bound = (1.09 + 4 * 0.07) * sigma
    assert np.abs(off).max() <= bound
    alone = [likely_shares(np.concatenate([*each.values()]), np.full(600, sigma), np.full(600, 20))[0] for each in seen]
    assert np.abs(np.mean(alone, axis=0)[:20] - law["x0"]).max() > bound


def test_no_levels_have_no_shares():
    assert likely_shares(np.zeros(0), np.zeros(0), np.zeros(0, dtype=int))[0].size == 0
    assert likely_margins({}, {}, 10.0) == {}
    assert likely_margins({"a": np.array([3.0])}, {"a": np.array([1.0])}, 10.0)["a"].tolist() == [10.0]
