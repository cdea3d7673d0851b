"""Members drawn from random keys: fixed sizes and coin flips, independent and balanced; rejected
members are redrawn.

Keys come from a counter-based generator (Philox): the keys of a row are a function of the seed and
of the row's number.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._compressed import Subsets, Threads

Keys = NDArray[np.uint64]

MIN_THREADED_ITEMS = 1 << 19  # random numbers, about six milliseconds, from which threads pay off
CHUNK_ITEMS = 1 << 22  # random numbers held at a time


class Stream(IntEnum):
    """Independent streams of random numbers of one seed."""

    COLUMNS = 0
    ROWS = 1
    GROUPS_OF_ROWS = 2
    DETERMINANTAL = 3


def integer_seed(rng: np.random.Generator | int | None) -> int:
    """Return the seed of counter-based draws: an integer as it is, or a number drawn from `rng`.

    >>> integer_seed(3)
    3
    """
    if isinstance(rng, (int, np.integer)):
        return int(rng)
    return int(np.random.default_rng(rng).integers(1 << 63))


def is_count(size: Any) -> bool:
    """Whether a size counts items; True and False do not."""
    return isinstance(size, (int, np.integer)) and not isinstance(size, (bool, np.bool_))


def is_all(size: Any) -> bool:
    """Whether a size takes every item: the fraction 1.0, not the count of one."""
    return isinstance(size, float) and size == 1.0


def resolve_size(size: Any, n_items: int, name: str) -> int:
    """Turn ``max_features`` or ``max_samples`` into a count: an int as it is, a float as a fraction
    rounded down.

    A fraction gives at least one item.

    Examples
    --------
    >>> from olsen.subsets import resolve_size
    >>> resolve_size(0.29, 100, "max_features"), resolve_size(7, 100, "max_features")
    (29, 7)
    """
    if is_count(size):
        if not 1 <= size <= n_items:
            raise ValueError(
                f"{name}={size} must lie between 1 and {n_items}; use a float for a fraction."
            )
        return int(size)
    if not isinstance(size, (float, np.floating)):
        raise TypeError(f"{name} must be an int (a count) or a float (a fraction), got {size!r}.")
    if not 0 < size <= 1:
        raise ValueError(
            f"{name}={size} is a fraction and must lie in (0, 1]; use an int for a count."
        )
    count = math.floor(float(size) * n_items + 1e-9)  # 0.29 * 100 is 28.999...
    return max(1, count)


def group_size(fraction: ArrayLike) -> NDArray[np.int64]:
    """Members that share one permutation in the balanced design, for one fraction or several.

    Up to one half, members are disjoint blocks: floor(1/fraction). Above, their *complements* are
    disjoint blocks: floor(1/(1-fraction)).

    Examples
    --------
    >>> from olsen.subsets import group_size
    >>> group_size([0.25, 0.8, 1.0]).tolist()
    [4, 5, 1]
    """
    fraction = np.asarray(fraction)
    smaller = np.minimum(fraction, 1 - fraction)
    n_blocks = np.floor(1 / np.where(smaller > 0, smaller, 1.0) + 1e-9)
    return np.asarray(np.maximum(1, n_blocks), dtype=np.int64)


def permutations(
    n_items: int, stop: int, *, seed: int, start: int = 0, stream: int = Stream.COLUMNS
) -> NDArray[np.int64]:
    """Random permutations number ``start`` to ``stop`` of a seed, one in each row.

    With ``design="independent"`` and ``sampling="fixed"``, member ``i`` is the first ``size``
    entries of permutation ``i``, so all sizes of a member are nested.

    Examples
    --------
    >>> from olsen.subsets import permutations
    >>> bool(
    ...     (
    ...         permutations(5, 4, seed=0)[2:] == permutations(5, 4, seed=0, start=2)
    ...     ).all()
    ... )
    True
    """
    raw = raw_keys(n_items + 1, start, stop, seed=seed, stream=stream)
    return key_order(raw[:, :n_items])


def draw(
    n_items: int,
    stop: int,
    *,
    rng: np.random.Generator | int | None,
    size: int | None = None,
    probabilities: ArrayLike | None = None,
    sampling: str = "fixed",
    design: str = "independent",
    start: int = 0,
    stream: int = Stream.COLUMNS,
    attempt: int = 0,
    threads: Threads | None = None,
) -> Subsets:
    r"""Subsets of members ``start`` to ``stop``.

    Parameters
    ----------
    n_items : int
        Number of items to draw from.
    stop : int
        One past the last member.
    rng : int, Generator or None
        A non-negative integer is the seed: member ``i`` is a function of ``(rng, i)`` alone. A
        numpy Generator gives one such integer, None an unforeseeable one.
    size : int, default=None
        Items per subset; with coin flips the expected number. Exactly one of `size` and
        `probabilities` is given.
    probabilities : array-like of shape (n_items,), default=None
        Inclusion probability of each item. With ``sampling="fixed"`` subsets are drawn
        systematically in random order: every probability is met exactly and sizes differ by at most
        one, from the floor of their sum to its ceiling.
    sampling : {"fixed", "bernoulli"}, default="fixed"
        Fixed sizes, or an independent coin flip for every item.
    design : {"independent", "balanced"}, default="independent"
        Whether members are independent, or avoid each other: members whose fraction of the items
        is at most one half share a permutation in groups of ``floor(1 / fraction)``, larger ones in
        groups of ``floor(1 / (1 - fraction))``.
    start : int, default=0
        First member.
    stream : {0, 1}, default=0
        0 for columns, 1 for rows: two independent streams of one seed.
    attempt : int, default=0
        Number of the draw, for redrawing rejected members.
    threads : callable, default=None
        ``threads(function, n_items)`` calls ``function(start, stop)`` on chunks, possibly in threads,
        and returns the results in order. None: a single call. What is drawn does not depend on it.

    Returns
    -------
    Subsets

    Examples
    --------
    >>> from olsen.subsets import draw
    >>> blocks = draw(6, 3, rng=0, size=2, design="balanced")
    >>> sorted(blocks.indices.tolist())  # three disjoint pairs
    [0, 1, 2, 3, 4, 5]
    """
    if (size is None) == (probabilities is None):
        raise ValueError("give exactly one of size and probabilities.")
    if size is None:
        chances = np.asarray(probabilities, float)
        fraction = float(np.mean(chances))
    else:
        fraction = size / n_items
        chances = np.full(n_items, fraction)
    per_group = int(group_size(fraction)) if design == "balanced" else 1
    if sampling == "bernoulli" or size is None:
        max_members = max(1, CHUNK_ITEMS // n_items)  # the mask of a group must fit into memory
        per_group = min(per_group, max_members)
    first_group = start // per_group
    last_group = -(-stop // per_group)
    n_groups = last_group - first_group
    seed = integer_seed(rng)

    def subsets_of(raw: Keys) -> Subsets:
        """Subsets of all members of the groups, from one row of keys per group."""
        if sampling == "bernoulli":
            return _flip_coins(raw[:, :n_items], chances, per_group)
        if size is None:
            return _systematic(raw, chances, per_group)
        return _cut_blocks(raw[:, :n_items], size, per_group)

    def draw_groups(begin: int, end: int) -> Subsets:
        parts = []
        step = max(1, CHUNK_ITEMS // n_items)
        for a in range(first_group + begin, first_group + end, step):
            b = min(a + step, first_group + end)
            raw = raw_keys(n_items + 1, a, b, seed=seed, stream=stream, attempt=attempt)
            parts.append(subsets_of(raw))
        return Subsets._joined(parts, n_items)

    if threads is not None and n_groups * n_items >= MIN_THREADED_ITEMS:
        groups = Subsets._joined(threads(draw_groups, n_groups), n_items)
    else:
        groups = draw_groups(0, n_groups)
    skip = start - first_group * per_group
    return groups.slice(skip, skip + stop - start)


def draw_members(
    n_rows: int,
    n_columns: int,
    stop: int,
    *,
    rng: np.random.Generator | int | None,
    max_features: int | float | ArrayLike = 0.5,
    max_samples: int | float = 1.0,
    sampling: str = "fixed",
    design: str = "independent",
    fit_intercept: bool = False,
    distinct_rows: int | None = None,
    start: int = 0,
    threads: Threads | None = None,
) -> tuple[Subsets, Subsets | None]:
    r"""Column and row subsets of members ``start`` to ``stop`` (Assumption 3.1 of the paper).

    Coin flips follow the paper's rejection rule: a member with :math:`|S_i| \ge |T_i| - 1` has
    infinite expected risk and is drawn again (an intercept takes one more row). Where more columns
    than rows are expected, members are minimum-norm interpolators and the rule is mirrored:
    :math:`|S_i| > |T_i| + 1`. A member whose rows an intercept would use up is drawn again as well.

    Parameters
    ----------
    n_rows, n_columns : int
        Shape of the data.
    stop : int
        One past the last member.
    rng : int, Generator or None
        As in :func:`draw`.
    max_features : int, float or array-like of shape (n_columns,), default=0.5
        Columns per member: a count, a fraction, or the inclusion probability of every column.
    max_samples : int or float, default=1.0
        Rows per member. All rows: no row subsets are drawn.
    sampling : {"fixed", "bernoulli"}, default="fixed"
        As in :func:`draw`.
    design : {"independent", "balanced"}, default="independent"
        As in :func:`draw`.
    fit_intercept : bool, default=False
        Whether members fit an intercept, which costs one row in the rejection rule.
    distinct_rows : int, default=None
        Rows that count in the rejection rule when all rows are used; repeated rows add no rank.
        None: all rows.
    start : int, default=0
        First member.
    threads : callable, default=None
        As in :func:`draw`.

    Returns
    -------
    features : Subsets
        Columns of each member.
    samples : Subsets or None
        Rows of each member; None means all rows for every member.

    Examples
    --------
    >>> from olsen.subsets import draw_members
    >>> features, samples = draw_members(
    ...     20, 10, 3, rng=0, max_features=4, max_samples=0.5
    ... )
    >>> features.sizes.tolist(), samples.sizes.tolist()
    ([4, 4, 4], [10, 10, 10])
    """
    columns = _size_or_probabilities(max_features, n_columns, "max_features")
    n_samples = resolve_size(max_samples, n_rows, "max_samples")
    settings: dict[str, Any] = {
        "rng": integer_seed(rng),
        "sampling": sampling,
        "design": design,
        "threads": threads,
    }

    def draw_both(first: int, last: int, attempt: int) -> tuple[Subsets, Subsets | None]:
        members: dict[str, Any] = {**settings, "start": first, "attempt": attempt}
        features = draw(n_columns, last, **members, **columns)
        if n_samples == n_rows:
            return features, None
        return features, draw(n_rows, last, stream=Stream.ROWS, size=n_samples, **members)

    features, samples = draw_both(start, stop, 0)
    if sampling == "fixed":
        return features, samples
    n_distinct = distinct_rows or n_rows
    row_counts = np.full(len(features), n_distinct) if samples is None else samples.sizes
    freedom = row_counts - fit_intercept
    (column_setting,) = columns.values()
    expected_columns = np.sum(column_setting)
    expected_rows = n_distinct if samples is None else n_samples
    is_overdetermined = expected_columns <= expected_rows - 1 - fit_intercept
    sizes = features.sizes.copy()
    column_lists = list(features)
    row_lists = list(samples or ())
    for attempt in range(1, 1001):
        wrong_side = sizes >= freedom - 1 if is_overdetermined else sizes <= freedom + 1
        rejected = np.flatnonzero(wrong_side | (freedom < 1)).tolist()
        if not rejected:
            accepted = Subsets.stack(column_lists, n_columns)
            return accepted, None if samples is None else Subsets.stack(row_lists, n_rows)
        for i in rejected:
            new_features, new_samples = draw_both(start + i, start + i + 1, attempt)
            column_lists[i] = new_features[0]
            sizes[i] = len(new_features[0])
            if new_samples is not None:
                row_lists[i] = new_samples[0]
                freedom[i] = len(new_samples[0]) - fit_intercept
    raise ValueError(
        f"coin flips were rejected 1000 times in a row: a member must have at least two"
        " rows more than columns (or, interpolating, two columns more than rows), but about"
        f" {np.mean(features.sizes):.1f} columns meet {np.mean(freedom):.1f} rows. Move"
        " max_features or max_samples apart, or use sampling='fixed'."
    )


def _size_or_probabilities(size: Any, n_items: int, name: str) -> dict[str, Any]:
    """Argument `size` or `probabilities` of :func:`draw`, from the user's setting."""
    if np.ndim(size) == 0:
        return {"size": resolve_size(size, n_items, name)}
    chances = np.asarray(size, dtype=float)
    if chances.shape != (n_items,):
        raise ValueError(
            f"{name} has shape {chances.shape}, but {n_items} inclusion probabilities are needed."
        )
    invalid = np.flatnonzero(~((chances >= 0) & (chances <= 1)))
    if len(invalid):
        first = invalid[0]
        raise ValueError(
            f"{name} holds inclusion probabilities and they must lie in [0, 1]; {len(invalid)} do"
            f" not, the first is {chances[first]} for column {first}."
        )
    if not chances.any():
        raise ValueError(
            f"{name} gives every column probability 0, so no member would see any column."
        )
    return {"probabilities": chances}


# Each scheme turns random keys, one row per group, into the subsets of the groups' members.


def _cut_blocks(raw: Keys, size: int, per_group: int) -> Subsets:
    """Consecutive blocks of one permutation, or everything but such a block when subsets exceed one
    half.
    """
    n_groups, n_items = raw.shape
    is_complement = per_group > 1 and size > n_items - size
    block = n_items - size if is_complement else size
    order = key_order(raw)[:, : per_group * block]
    blocks = order.reshape(n_groups * per_group, block)
    if is_complement:
        mask = np.ones((len(blocks), n_items), dtype=bool)
        np.put_along_axis(mask, blocks, False, axis=1)
        return Subsets._from_mask(mask)
    items = np.sort(blocks.astype(np.int32), axis=1)  # half as many bytes sort several times faster
    indptr = np.arange(len(items) + 1, dtype=np.int64) * size
    return Subsets(n_items, indptr, items.astype(np.int64).reshape(-1))


def _flip_coins(raw: Keys, chances: NDArray[np.float64], per_group: int) -> Subsets:
    """Item j joins member b of a group when frac(u_j + b / per_group) < chance_j: coin flips that
    avoid each other.
    """
    shift = np.arange(per_group)[:, None] / per_group
    u = (_uniform(raw)[:, None, :] + shift) % 1.0  # (groups, members, items)
    mask = u < chances
    return Subsets._from_mask(mask.reshape(-1, len(chances)))


def _systematic(raw: Keys, chances: NDArray[np.float64], per_group: int) -> Subsets:
    """Systematic sampling in random order: lay the probabilities end to end and pick at unit steps.

    Member b of a group starts its steps at frac(u + b / per_group). Item j, which covers [low_j,
    high_j), is picked when a point u + integer falls into that interval, which has probability
    exactly chance_j.
    """
    n_groups = len(raw)
    n_items = len(chances)
    order = key_order(raw[:, :n_items])
    # a search for the points of every order costs less than a look at all items
    high = np.cumsum(chances[order], axis=1)
    total = high[:, -1]
    u = _uniform(raw[:, n_items])
    first_points = (u[:, None] + np.arange(per_group) / per_group) % 1.0
    steps = np.arange(int(np.ceil(total.max(initial=0.0))) + 1)
    points = first_points[:, :, None] + steps  # (groups, members, steps)
    in_range = points < total[:, None, None]
    group, member, _ = np.nonzero(in_range)
    positions = [np.empty(0, np.int64)]
    for g in range(n_groups):
        positions.append(np.searchsorted(high[g], points[g][in_range[g]], side="right"))
    position = np.minimum(np.concatenate(positions), n_items - 1)
    item = order[group, position]
    picked = np.sort((group * per_group + member) * n_items + item)
    picked = picked[np.diff(picked, prepend=-1) > 0]  # rounding may pick an item twice
    owner, items = np.divmod(picked, n_items)
    sizes = np.bincount(owner, minlength=n_groups * per_group)
    return Subsets._of_sizes(sizes, [items], n_items)


# Random keys


def raw_keys(
    width: int, start: int, stop: int, *, seed: int, stream: int, attempt: int = 0
) -> NDArray[np.uint64]:
    """Rows `start` to `stop` of an endless table of 64-bit keys; each row starts at a separate
    counter value.
    """
    counters = -(-width // 4)  # Philox gives four numbers for each counter value
    bits = np.random.Philox(key=philox_key(seed, stream, attempt), counter=start * counters)
    numbers = bits.random_raw((stop - start) * counters * 4)
    return numbers.reshape(stop - start, counters * 4)[:, :width]


def philox_key(seed: int, *spawn_key: int) -> NDArray[np.uint64]:
    """Key of the generator of a stream."""
    sequence = np.random.SeedSequence(seed, spawn_key=spawn_key)
    return np.asarray(sequence.generate_state(2, np.uint64), dtype=np.uint64)


def key_order(raw: Keys) -> NDArray[np.int64]:
    """Items in the order of their keys, row by row."""
    if raw.shape[1] > 1000:
        return _numbered_order(raw)[0]
    # half of the bits sort several times as fast, and few rows have ties
    order, tied = _numbered_order((raw >> np.uint64(32)).astype(np.uint32))
    order[tied] = _numbered_order(raw[tied])[0]
    return order


def _numbered_order(keys: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Items in the order of keys whose last bits are replaced by the item's number, and rows with
    ties.

    Sorting values, twice as fast as sorting indices, then gives the order; full keys retain enough
    bits that ties are practically impossible.
    """
    n_items = keys.shape[1]
    n_bits = max(1, (n_items - 1).bit_length())
    mask = keys.dtype.type((1 << n_bits) - 1)
    numbered = np.sort((keys & ~mask) | np.arange(n_items, dtype=keys.dtype), axis=1)
    differences = (numbered[:, 1:] ^ numbered[:, :-1]) & ~mask
    tied = np.any(differences == 0, axis=1)
    return (numbered & mask).astype(np.int64), tied


def _uniform(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in [0, 1) from keys."""
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def row_groups(first: int, count: int, n_groups: int, seed: int) -> NDArray[np.uint64]:
    """Groups of `count` rows from row `first` on: each depends on the seed and on the row index
    alone.
    """
    skip = first % 4  # Philox gives four numbers for each counter value
    bits = np.random.Philox(key=philox_key(seed, Stream.GROUPS_OF_ROWS), counter=first // 4)
    raw = bits.random_raw(skip + count)[skip:]
    return raw % np.uint64(n_groups)
