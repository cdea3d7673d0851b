"""Subsets: their distribution, and that member i depends on (rng, i) alone."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from loops import case
from olsen._execution.threads import Threads
from olsen.subsets import (
    Design,
    Determinantal,
    DrawnColumns,
    Subsets,
    _drawing,
    draw,
    draw_members,
    group_size,
    permutations,
    resolve_size,
)

LAWS = list(itertools.product(("fixed", "bernoulli"), ("independent", "balanced")))


def within(count, trials, chance):
    """Whether binomial counts lie within 5 standard errors: about one false alarm in two million."""
    return np.all(
        np.abs(count - trials * chance) <= 5 * np.sqrt(trials * chance * (1 - chance)) + 1e-9
    )


@pytest.mark.parametrize(("sampling", "design"), LAWS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_member_depends_on_seed_and_number_only(sampling, design, data):
    n = data.draw(st.integers(1, 40))
    stop = data.draw(st.integers(1, 60))
    start = data.draw(st.integers(0, stop))
    options = {
        "rng": data.draw(st.integers(0, 2**40)),
        "size": data.draw(st.integers(1, n)),
        "sampling": sampling,
    }
    all_members = draw(n, stop, design=design, **options)
    part = draw(n, stop, design=design, start=start, **options)
    assert_array_equal(part.mask(), all_members.mask()[start:])
    for subset in all_members:
        assert (
            np.all(np.diff(subset) > 0) and subset.min(initial=0) >= 0 and subset.max(initial=0) < n
        )
    assert sampling == "bernoulli" or np.all(all_members.sizes == options["size"])


def test_chunks_and_threads_do_not_change_the_draw(monkeypatch):
    for (sampling, design), probabilities in itertools.product(
        LAWS, (None, np.linspace(0.1, 0.6, 20))
    ):
        with monkeypatch.context() as patch, case(sampling, design, probabilities is None):
            options = {
                "rng": 3,
                "size": 7 if probabilities is None else None,
                "probabilities": probabilities,
            }
            options |= {"design": design, "sampling": sampling, "start": 5}
            alone = draw(20, 60, **options)
            patch.setattr(_drawing, "CHUNK_ITEMS", 120)
            patch.setattr(_drawing, "MIN_THREADED_ITEMS", 0)
            if (
                probabilities is None and sampling == "fixed"
            ):  # groups of others are as large as chunks allow
                assert_array_equal(draw(20, 60, **options).indices, alone.indices)
            patch.undo()
            patch.setattr(_drawing, "MIN_THREADED_ITEMS", 0)
            shared = draw(20, 60, threads=Threads(3), **options)
            assert_array_equal(shared.indices, alone.indices)
            assert_array_equal(shared.indptr, alone.indptr)
            assert_array_equal(alone.counts(), alone.mask().sum(axis=0))


def test_orders_follow_the_whole_key(seed):
    """Keys that share their first bits are distinguished by the others."""
    rng = np.random.default_rng(seed)
    for bits in (2, 9, 40):
        raw = rng.integers(0, 2**bits, (200, 300), dtype=np.uint64) << np.uint64(63 - bits)
        raw |= rng.permuted(
            np.tile(np.arange(300, dtype=np.uint64), (200, 1)), axis=1
        ) << np.uint64(12)
        with case(bits):
            assert_array_equal(_drawing.key_order(raw), np.argsort(raw, axis=1))


def test_items_subsets_and_given_probabilities_are_as_likely_as_asked_for(seed):
    """Within a group of balanced members counts are negatively correlated, so the binomial bound is
    generous.
    """
    k = 30_000
    chance = np.array([0.0, 0.05, 0.3, 0.5, 0.77, 1.0, 0.2, 0.18])
    for sampling, design in LAWS:
        with case(sampling, design):
            options = {"rng": seed, "sampling": sampling, "design": design}
            assert within(draw(10, k, size=3, **options).counts(), k, 0.3)
            drawn = draw(len(chance), k, probabilities=chance, **options)
            assert within(drawn.counts(), k, chance)
            assert sampling == "bernoulli" or set(drawn.sizes) <= {3}, "probabilities sum to 3"
    drawn = draw(5, k, rng=seed, size=2).indices.reshape(k, 2)
    counts = np.unique(drawn[:, 0] * 5 + drawn[:, 1], return_counts=True)[1]
    assert len(counts) == 10 and within(counts, k, 0.1)
    mask = draw(6, k, rng=seed, size=2, sampling="bernoulli", design="balanced").mask()
    for j in range(5):
        assert within(np.sum(mask[:, j] & mask[:, j + 1]), k, (1 / 3) ** 2), (
            "coin flips of items are independent"
        )


@given(n=st.integers(2, 60), data=st.data())
@settings(max_examples=60, deadline=None)
def test_balanced_members_overlap_as_little_as_they_can(n, data):
    size = data.draw(st.integers(1, n - 1))
    per_group = int(group_size(size / n))
    for group in (
        draw(n, 2 * per_group, rng=1, size=size, design="balanced").mask().reshape(2, per_group, n)
    ):
        overlap = group.astype(int) @ group.T.astype(int)
        assert np.all(overlap[~np.eye(per_group, dtype=bool)] == max(0, 2 * size - n))
    mask = draw(n, per_group, rng=3, size=size, sampling="bernoulli", design="balanced").mask()
    assert (mask if size <= n / 2 else ~mask).sum(axis=0).max() <= 1


def test_sizes_of_a_member_are_nested():
    order = permutations(30, 4, seed=9)
    for size in (1, 7, 29, 30):
        for member, subset in zip(order, draw(30, 4, rng=9, size=size), strict=True):
            assert set(subset) == set(member[:size])


def test_rows_and_columns_are_different_streams():
    features, samples = draw_members(40, 40, 3, rng=0, max_features=10, max_samples=15)
    assert any(set(f) - set(s) for f, s in zip(features, samples, strict=True))


def test_a_generator_gives_one_integer(seed):
    """The subsets are those of the integer, for rows, columns and redrawn members alike."""
    options = {"max_features": 0.5, "max_samples": 0.7, "sampling": "bernoulli"}
    process = Determinantal.from_rows(np.random.default_rng(seed).standard_normal((20, 12)), 5.0)
    for drawn in (
        lambda rng: draw(12, 30, rng=rng, size=4),
        lambda rng: draw_members(20, 12, 30, rng=rng, **options)[0],
        lambda rng: draw_members(20, 12, 30, rng=rng, **options)[1],
        lambda rng: process.draw(0, 30, rng=rng),
    ):
        integer = int(np.random.default_rng(seed).integers(1 << 63))
        from_generator = drawn(np.random.default_rng(seed))
        assert_array_equal(from_generator.mask(), drawn(integer).mask())
        assert not np.array_equal(from_generator.indices, drawn(None).indices)


def test_rejection_rule_of_the_paper_and_its_mirror_for_interpolators():
    options = {"rng": 2, "max_features": 0.5, "max_samples": 0.7, "sampling": "bernoulli"}
    for design, intercept in itertools.product(("independent", "balanced"), (False, True)):
        with case(design, intercept):
            features, samples = draw_members(
                14, 12, 400, design=design, fit_intercept=intercept, **options
            )
            assert np.all(features.sizes < samples.sizes - intercept - 1)
            tail, _ = draw_members(
                14, 12, 400, design=design, fit_intercept=intercept, start=250, **options
            )
            assert_array_equal(features.slice(250, 400).indices, tail.indices)
    features, samples = draw_members(
        10, 40, 200, rng=2, max_features=0.3, max_samples=0.6, sampling="bernoulli"
    )
    assert np.all(features.sizes > samples.sizes + 1)
    with pytest.raises(ValueError, match=r"1000 times.*max_features"):
        draw_members(
            4, 400, 1, rng=0, max_features=np.r_[np.ones(3), np.zeros(397)], sampling="bernoulli"
        )


def test_impossible_sizes_and_subsets_are_named():
    assert (
        resolve_size(1, 10, "m") == 1
        and resolve_size(1.0, 10, "m") == 10
        and resolve_size(0.01, 10, "m") == 1
    )
    for size, kind, words in (
        *((size, ValueError, f"m={size}") for size in (0, 11, 0.0, 1.5, -0.1)),
        *((size, TypeError, "m must be") for size in (True, "half", None)),
    ):
        with case(size), pytest.raises(kind, match=words):
            resolve_size(size, 10, "m")
    with pytest.raises(ValueError, match="subset 1 names an item twice"):
        Subsets.from_lists([[0], [1, 1]], 3)
    with pytest.raises(ValueError, match="only 3 items"):
        Subsets.from_lists([[0, 3]], 3)


def test_members_have_one_column_of_every_group(seed):
    """Each column of a group as often as the others, whatever the chunks of the draw."""
    group = np.array([0, 1, 0, 2, 2, 3, 2, 4])
    columns = DrawnColumns.of_groups(group)
    assert columns.n_items == 5 and columns.sizes.tolist() == [2, 1, 3, 1, 1]
    design = Design(
        n_rows=20, n_columns=8, seed=seed, max_features=3, drawn_columns=columns, kind="independent"
    )
    features, _ = design.draw(0, 3000)
    assert all(len(set(group[subset])) == 3 for subset in features)
    later, _ = design.draw(1000, 2000)
    assert all(np.array_equal(a, b) for a, b in zip(later, features[1000:2000], strict=True))
    counts = features.counts()
    expected = 3000 * (3 / 5) / columns.sizes[group]
    assert np.all(np.abs(counts - expected) < 4 * np.sqrt(expected))
