"""Subsets: their law, and that member i depends on (seed, i) alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olsen._execution.threads import Sharing
from olsen.subsets import (
    Subsets,
    _compressed,
    _drawing,
    draw,
    draw_members,
    group_size,
    permutations,
    resolve_size,
)

LAWS = [(sampling, design) for sampling in ("fixed", "bernoulli") for design in ("independent", "balanced")]


def within(count, trials, chance):
    """Whether binomial counts lie within 5 standard errors: about one false alarm in two million."""
    return np.all(np.abs(count - trials * chance) <= 5 * np.sqrt(trials * chance * (1 - chance)) + 1e-9)


@pytest.mark.parametrize(("sampling", "design"), LAWS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_member_depends_on_seed_and_number_only(sampling, design, data):
    n = data.draw(st.integers(1, 40))
    size = data.draw(st.integers(1, n))
    stop = data.draw(st.integers(1, 60))
    start = data.draw(st.integers(0, stop))
    seed = data.draw(st.integers(0, 2**40))
    whole = draw(n, stop, seed=seed, size=size, sampling=sampling, design=design)
    part = draw(n, stop, seed=seed, size=size, sampling=sampling, design=design, start=start)
    assert len(part) == stop - start
    for i in range(start, stop):
        np.testing.assert_array_equal(whole[i], part[i - start])
    for subset in whole:
        assert np.all(np.diff(subset) > 0) and subset.min(initial=0) >= 0 and subset.max(initial=0) < n
    if sampling == "fixed":
        assert np.all(whole.sizes == size)


def test_chunks_do_not_change_the_draw(monkeypatch):
    whole = draw(50, 333, seed=5, size=20, design="balanced")
    monkeypatch.setattr(_drawing, "_CHUNK_ITEMS", 120)
    np.testing.assert_array_equal(draw(50, 333, seed=5, size=20, design="balanced").indices, whole.indices)


@pytest.mark.parametrize(("sampling", "design"), LAWS)
def test_threads_do_not_change_the_draw(sampling, design, monkeypatch):
    how = {"seed": 3, "size": 7, "design": design, "sampling": sampling, "start": 5}
    alone = draw(20, 60, **how)
    monkeypatch.setattr(_compressed, "WORTH_SHARING", 0)
    monkeypatch.setattr(_drawing, "WORTH_SHARING", 0)
    mapper = Sharing(3)
    shared = draw(20, 60, mapper=mapper, **how)
    np.testing.assert_array_equal(shared.mask(mapper), alone.mask())
    np.testing.assert_array_equal(shared.counts(mapper), alone.mask().sum(axis=0))
    assert shared.indices.tolist() == alone.indices.tolist() and shared.indptr.tolist() == alone.indptr.tolist()


@pytest.mark.parametrize("bits", [2, 9, 40])
def test_orders_follow_the_whole_key(bits, seed):
    """Keys that share their first bits, in pairs and in threes, are told apart by the others."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 2**bits, (200, 300), dtype=np.uint64) << np.uint64(63 - bits)
    raw |= rng.permuted(np.tile(np.arange(300, dtype=np.uint64), (200, 1)), axis=1) << np.uint64(12)
    np.testing.assert_array_equal(_drawing.key_order(raw), np.argsort(raw, axis=1))


@pytest.mark.parametrize(("sampling", "design"), LAWS)
def test_every_item_is_equally_likely(sampling, design, seed):
    k = 20_000
    drawn = draw(10, k, seed=seed, size=3, sampling=sampling, design=design)
    # within a group of balanced members counts are negatively correlated, so the binomial bound is generous
    assert within(drawn.counts(), k, 0.3)


def test_all_subsets_of_a_size_are_equally_likely(seed):
    k = 30_000
    drawn = draw(5, k, seed=seed, size=2).indices.reshape(k, 2)
    counts = np.unique(drawn[:, 0] * 5 + drawn[:, 1], return_counts=True)[1]
    assert len(counts) == 10 and within(counts, k, 0.1)


@pytest.mark.parametrize("sampling", ["fixed", "bernoulli"])
@pytest.mark.parametrize("design", ["independent", "balanced"])
def test_given_probabilities_are_met(sampling, design, seed):
    chance = np.array([0.0, 0.05, 0.3, 0.5, 0.77, 1.0, 0.2, 0.18])
    k = 30_000
    drawn = draw(len(chance), k, seed=seed, probabilities=chance, sampling=sampling, design=design)
    assert within(drawn.counts(), k, chance)
    if sampling == "fixed":
        assert set(drawn.sizes) <= {3}, "probabilities sum to 3, so systematic samples have size 3"


def test_coin_flips_are_independent_between_items(seed):
    k = 40_000
    mask = draw(6, k, seed=seed, size=2, sampling="bernoulli", design="balanced").mask()
    for j in range(5):
        assert within(np.sum(mask[:, j] & mask[:, j + 1]), k, (1 / 3) ** 2)


@given(n=st.integers(2, 60), data=st.data())
@settings(max_examples=60, deadline=None)
def test_balanced_blocks_overlap_as_little_as_they_can(n, data):
    size = data.draw(st.integers(1, n - 1))
    per_group = group_size(size / n)
    first, second = draw(n, 2 * per_group, seed=1, size=size, design="balanced").mask().reshape(2, per_group, n)
    for group in (first, second):
        overlap = group.astype(int) @ group.T.astype(int)
        assert np.all(overlap[~np.eye(per_group, dtype=bool)] == max(0, 2 * size - n))


@given(n=st.integers(2, 60), data=st.data())
@settings(max_examples=40, deadline=None)
def test_balanced_coin_flips_overlap_as_little_as_they_can(n, data):
    size = data.draw(st.integers(1, n - 1))
    per_group = group_size(size / n)
    mask = draw(n, per_group, seed=3, size=size, sampling="bernoulli", design="balanced").mask()
    if size <= n / 2:
        assert mask.sum(axis=0).max() <= 1
    else:
        assert (~mask).sum(axis=0).max() <= 1


def test_sizes_of_a_member_are_nested():
    order = permutations(30, 4, seed=9)
    for size in (1, 7, 29, 30):
        drawn = draw(30, 4, seed=9, size=size)
        for i in range(4):
            assert set(drawn[i]) == set(order[i, :size])


def test_rows_and_columns_are_different_streams():
    features, samples = draw_members(40, 40, 3, seed=0, max_features=10, max_samples=15)
    assert any(set(f) - set(s) for f, s in zip(features, samples, strict=True))


@pytest.mark.parametrize("design", ["independent", "balanced"])
@pytest.mark.parametrize("intercept", [False, True])
def test_rejection_rule_of_the_paper(design, intercept):
    features, samples = draw_members(
        14, 12, 400, seed=2, max_features=0.5, max_samples=0.7, sampling="bernoulli", design=design,
        fit_intercept=intercept,
    )  # fmt: skip
    assert np.all(features.sizes < samples.sizes - intercept - 1)
    tail, _ = draw_members(
        14, 12, 400, seed=2, max_features=0.5, max_samples=0.7, sampling="bernoulli", design=design,
        fit_intercept=intercept, start=250,
    )  # fmt: skip
    np.testing.assert_array_equal(features.slice(250, 400).indices, tail.indices)


def test_rejection_is_mirrored_for_interpolators():
    features, samples = draw_members(10, 40, 200, seed=2, max_features=0.3, max_samples=0.6, sampling="bernoulli")
    assert np.all(features.sizes > samples.sizes + 1)


def test_hopeless_coin_flips_are_refused():
    with pytest.raises(ValueError, match=r"rejected 1000 times.*max_features"):
        draw_members(4, 400, 1, seed=0, max_features=np.r_[np.ones(3), np.zeros(397)], sampling="bernoulli")


def test_from_lists_refuses_repetition_and_strangers():
    with pytest.raises(ValueError, match="subset 1 names an item twice"):
        Subsets.from_lists([[0], [1, 1]], 3)
    with pytest.raises(ValueError, match="only 3 items"):
        Subsets.from_lists([[0, 3]], 3)


def test_resolve_size_reads_like_scikit_learn():
    assert resolve_size(1, 10, "m") == 1 and resolve_size(1.0, 10, "m") == 10 and resolve_size(0.01, 10, "m") == 1
    for bad in (0, 11, 0.0, 1.5, -0.1):
        with pytest.raises(ValueError, match="m="):
            resolve_size(bad, 10, "m")
    for bad in (True, "half", None):
        with pytest.raises(TypeError, match="m must be"):
            resolve_size(bad, 10, "m")
