"""Members drawn from random keys: fixed sizes and coin flips, independent and balanced, rejected ones drawn again.

Keys come from a counter-based generator (Philox): those of a row are a function of the seed and of the row's number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._compressed import WORTH_SHARING, Mapper, Subsets

__all__ = [
    "COLUMNS",
    "ROWS",
    "draw",
    "draw_members",
    "group_size",
    "group_sizes",
    "key_order",
    "permutations",
    "raw_keys",
    "resolve_size",
    "row_groups",
]

U = TypeVar("U", np.uint32, np.uint64)
Keys = NDArray[np.uint64]
Law = Callable[[Keys], "NDArray[Any] | Subsets"]

COLUMNS, ROWS, GROUPS = 0, 1, 2  # streams of a seed: for columns, rows and groups of rows
FEW_ITEMS = 4000  # up to which three keys of a row seldom share their first bits
_CHUNK_ITEMS = 1 << 22  # random numbers held at a time
_MAX_ATTEMPTS = 1000


def resolve_size(size: object, n_items: int, name: str) -> int:
    """Turn ``max_features`` or ``max_samples`` into a count: an int as it is, a float as a fraction rounded down.

    A fraction gives at least one item.

    Examples
    --------
    >>> from olsen.subsets import resolve_size
    >>> resolve_size(0.29, 100, "max_features"), resolve_size(7, 100, "max_features")
    (29, 7)
    """
    if isinstance(size, (bool, np.bool_)) or not isinstance(size, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be an int (a count) or a float (a fraction), got {size!r}.")
    if isinstance(size, (int, np.integer)):
        if not 1 <= size <= n_items:
            raise ValueError(
                f"{name}={size} must lie between 1 and the {n_items} there are; use a float for a fraction."
            )
        return int(size)
    if not 0 < size <= 1:
        raise ValueError(f"{name}={size} is a fraction and must lie in (0, 1]; use an int for a count.")
    return max(1, math.floor(float(size) * n_items + 1e-9))  # 0.29 * 100 is 28.999...


def group_size(fraction: float) -> int:
    """Members that share one permutation in the balanced design.

    Up to one half, disjoint blocks: floor(1/fraction). Above, disjoint *left-out* blocks: floor(1/(1-fraction)).

    Examples
    --------
    >>> from olsen.subsets import group_size
    >>> group_size(0.25), group_size(0.8), group_size(1.0)
    (4, 5, 1)
    """
    return int(group_sizes(np.array([fraction]))[0])


def group_sizes(fractions: NDArray[np.float64]) -> NDArray[np.int64]:
    """:func:`group_size` of several fractions.

    Examples
    --------
    >>> from olsen.subsets import group_sizes
    >>> group_sizes(np.array([0.25, 0.8, 1.0])).tolist()
    [4, 5, 1]
    """
    smaller = np.minimum(fractions, 1 - fractions)
    whole = np.floor(1 / np.where(smaller > 0, smaller, 1.0) + 1e-9)
    return np.maximum(1, whole).astype(np.int64)


def permutations(n_items: int, stop: int, *, seed: int, start: int = 0, stream: int = COLUMNS) -> NDArray[np.int64]:
    """Random permutations number ``start`` to ``stop`` of a seed, one in each row.

    With ``design="independent"`` and ``sampling="fixed"``, member ``i`` is the first ``size`` entries of permutation
    ``i``, so all sizes of a member are nested.

    Examples
    --------
    >>> from olsen.subsets import permutations
    >>> bool((permutations(5, 4, seed=0)[2:] == permutations(5, 4, seed=0, start=2)).all())
    True
    """
    return key_order(raw_keys(n_items + 1, start, stop, seed, stream)[:, :n_items])


def draw(
    n_items: int,
    stop: int,
    *,
    seed: int,
    size: int | None = None,
    probabilities: ArrayLike | None = None,
    sampling: str = "fixed",
    design: str = "independent",
    start: int = 0,
    stream: int = COLUMNS,
    attempt: int = 0,
    mapper: Mapper | None = None,
) -> Subsets:
    r"""Subsets of members ``start`` to ``stop``.

    Parameters
    ----------
    n_items : int
        Number of items to draw from.
    stop : int
        One past the last member.
    seed : int
        Non-negative seed; member ``i`` is a function of ``(seed, i)`` alone.
    size : int, default=None
        Items per subset; with coin flips the expected number. Exactly one of `size` and `probabilities` is given.
    probabilities : array-like of shape (n_items,), default=None
        Inclusion probability of each item. With ``sampling="fixed"`` subsets are drawn systematically in random order:
        every probability is met exactly and sizes differ by at most one, from the floor of their sum to its ceiling.
    sampling : {"fixed", "bernoulli"}, default="fixed"
        Fixed sizes, or an independent coin flip for every item.
    design : {"independent", "balanced"}, default="independent"
        Whether members are independent, or share permutations in groups of :func:`group_size` and avoid each other.
    start : int, default=0
        First member.
    stream : {0, 1}, default=0
        0 for columns, 1 for rows: two independent streams of one seed.
    attempt : int, default=0
        Number of the draw, for redrawing rejected members.
    mapper : callable, default=None
        ``mapper(function, n_items)`` calls ``function(start, stop)`` on chunks, in threads if it likes, and returns the
        results in order. None: one after the other. What is drawn does not depend on it.

    Returns
    -------
    Subsets

    Examples
    --------
    >>> from olsen.subsets import draw
    >>> blocks = draw(6, 3, seed=0, size=2, design="balanced")
    >>> sorted(blocks.indices.tolist())  # three disjoint pairs
    [0, 1, 2, 3, 4, 5]
    """
    if (size is None) == (probabilities is None):
        raise ValueError("give exactly one of size and probabilities.")
    fraction = size / n_items if size is not None else float(np.mean(np.asarray(probabilities, dtype=np.float64)))
    per_group = group_size(fraction) if design == "balanced" else 1
    if sampling == "bernoulli" or probabilities is not None:
        per_group = min(per_group, max(1, _CHUNK_ITEMS // n_items))  # the group is laid out as a mask
    key = (seed, stream, attempt)
    first = start // per_group
    as_mask = sampling == "bernoulli" or size is None
    if as_mask and start < stop <= (first + 1) * per_group:  # within one group, of which not all need be made
        wanted = range(start - first * per_group, stop - first * per_group)
        law = _law(n_items, size, probabilities, sampling, per_group, wanted)
        return _from_array(law(raw_keys(n_items + 1, first, first + 1, *key)), n_items)
    law = _law(n_items, size, probabilities, sampling, per_group)
    return _draw_groups(law, n_items, per_group, start, stop, key, mapper)


def _draw_groups(
    law: Law,
    n_items: int,
    per_group: int,
    start: int,
    stop: int,
    key: tuple[int, int, int],
    mapper: Mapper | None,
) -> Subsets:
    """Members `start` to `stop` of groups whose random keys are those of (seed, stream, attempt)."""
    first, last = start // per_group, -(-stop // per_group)

    def work(begin: int, end: int) -> list[Subsets]:
        at_once = max(1, _CHUNK_ITEMS // max(1, n_items))
        bounds = [(a, min(a + at_once, end)) for a in range(begin, end, at_once)]
        keys = (raw_keys(n_items + 1, first + a, first + b, *key) for a, b in bounds)
        return [_from_array(law(rows), n_items) for rows in keys]

    count = last - first
    if mapper is None or count * n_items < WORTH_SHARING:
        parts = work(0, count)
    else:
        parts = list(chain.from_iterable(mapper(work, count)))
    skip = start - first * per_group
    return Subsets.joined(parts, n_items).slice(skip, skip + stop - start)


def _from_array(drawn: NDArray[Any] | Subsets, n_items: int) -> Subsets:
    """Subsets from a mask, or from rows of items."""
    if isinstance(drawn, Subsets):
        return drawn
    if drawn.dtype == bool:
        return Subsets.from_mask(drawn)
    count, size = drawn.shape
    indptr = np.arange(count + 1, dtype=np.int64) * size
    return Subsets(n_items, indptr, np.ascontiguousarray(drawn, dtype=np.int64).reshape(-1))


def draw_members(
    n_rows: int,
    n_columns: int,
    stop: int,
    *,
    seed: int,
    max_features: int | float | ArrayLike = 0.5,
    max_samples: int | float = 1.0,
    sampling: str = "fixed",
    design: str = "independent",
    fit_intercept: bool = False,
    distinct_rows: int | None = None,
    start: int = 0,
    stream: int = COLUMNS,
    mapper: Mapper | None = None,
) -> tuple[Subsets, Subsets | None]:
    r"""Column and row subsets of members ``start`` to ``stop``.

    Coin flips follow the paper's rejection rule: a member with :math:`|S_i| \ge |T_i| - 1` has infinite expected risk
    and is drawn again (an intercept takes one more row). Where more columns than rows are expected, members are
    minimum-norm interpolators and the rule is mirrored: :math:`|S_i| > |T_i| + 1`. A member whose rows an intercept
    would use up is drawn again as well.

    Parameters
    ----------
    n_rows, n_columns : int
        Shape of the data.
    stop : int
        One past the last member.
    seed : int
        Non-negative seed.
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
        Rows that count in the rejection rule when all are used; repeated ones add no rank. None: all of them.
    start : int, default=0
        First member.
    stream : int, default=0
        Stream of the seed for the columns.
    mapper : callable, default=None
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
    >>> features, samples = draw_members(20, 10, 3, seed=0, max_features=4, max_samples=0.5)
    >>> features.sizes.tolist(), samples.sizes.tolist()
    ([4, 4, 4], [10, 10, 10])
    """
    columns = _size_or_chances(max_features, n_columns, "max_features")
    rows = _size_or_chances(max_samples, n_rows, "max_samples")

    def draw_both(first: int, last: int, attempt: int) -> tuple[Subsets, Subsets | None]:
        how: dict[str, Any] = {"seed": seed, "sampling": sampling, "design": design, "start": first}
        how |= {"attempt": attempt, "mapper": mapper}
        features = draw(n_columns, last, stream=stream, **columns, **how)
        return features, None if rows.get("size") == n_rows else draw(n_rows, last, stream=ROWS, **rows, **how)

    features, samples = draw_both(start, stop, 0)
    if sampling == "fixed":
        return features, samples
    expected_columns = columns.get("size", np.sum(columns.get("probabilities", 0.0)))
    expected_rows = rows["size"] if samples is not None or distinct_rows is None else distinct_rows
    overdetermined = expected_columns <= expected_rows - 1 - fit_intercept
    all_rows = (n_rows if distinct_rows is None else distinct_rows) - fit_intercept
    return _redraw_rejected(features, samples, draw_both, start, all_rows, fit_intercept, overdetermined)


def _size_or_chances(size: Any, n_items: int, name: str) -> dict[str, Any]:
    """`size` or `probabilities` for :func:`draw`, from what the user wrote."""
    if np.ndim(size) == 0:
        return {"size": resolve_size(size, n_items, name)}
    chance = np.asarray(size, dtype=float)
    if chance.shape != (n_items,):
        raise ValueError(
            f"{name} has shape {chance.shape}, but {n_items} inclusion probabilities are needed, one for each column."
        )
    bad = np.flatnonzero(~((chance >= 0) & (chance <= 1)))
    if len(bad):
        raise ValueError(
            f"{name} holds inclusion probabilities and they must lie in [0, 1]; {len(bad)} do not, the first is "
            f"{chance[bad[0]]} for column {bad[0]}."
        )
    if not chance.any():
        raise ValueError(f"{name} gives every column probability 0, so no member would see any column.")
    return {"probabilities": chance}


def _redraw_rejected(
    features: Subsets,
    samples: Subsets | None,
    draw_both: Callable[[int, int, int], tuple[Subsets, Subsets | None]],
    start: int,
    all_rows: int,
    lost_rows: int,
    overdetermined: bool,
) -> tuple[Subsets, Subsets | None]:
    """Replace rejected members by their next attempt, until none is rejected."""
    rows = np.full(len(features), all_rows) if samples is None else samples.sizes - lost_rows
    kept_features, kept_samples = list(features), list(samples) if samples is not None else []
    size = features.sizes.copy()
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        wrong_side = size >= rows - 1 if overdetermined else size <= rows + 1
        rejected = np.flatnonzero(wrong_side | (rows < 1))
        if not len(rejected):
            same = attempt == 1
            return (features, samples) if same else _restack(features, samples, kept_features, kept_samples)
        for i in rejected.tolist():
            new_features, new_samples = draw_both(start + i, start + i + 1, attempt)
            kept_features[i], size[i] = new_features[0], new_features.sizes[0]
            if new_samples is not None:
                kept_samples[i], rows[i] = new_samples[0], new_samples.sizes[0] - lost_rows
    raise ValueError(
        f"coin flips were rejected {_MAX_ATTEMPTS} times in a row: a member must have at least two rows more than "
        f"columns (or, interpolating, two columns more than rows), but about {np.mean(features.sizes):.1f} columns "
        f"meet {np.mean(rows):.1f} rows. Move max_features or max_samples apart, or use sampling='fixed'."
    )


def _restack(
    features: Subsets,
    samples: Subsets | None,
    kept_features: list[NDArray[np.int64]],
    kept_samples: list[NDArray[np.int64]],
) -> tuple[Subsets, Subsets | None]:
    new_features = Subsets.stack(kept_features, features.n_items)
    return new_features, None if samples is None else Subsets.stack(kept_samples, samples.n_items)


# Sampling schemes: from random keys to the subsets of a group of members


def _law(
    n_items: int,
    size: int | None,
    probabilities: ArrayLike | None,
    sampling: str,
    per_group: int,
    wanted: range | None = None,
) -> Law:
    """The function that turns random keys, one row for each group, into the group's subsets.

    They come as rows of ascending item numbers where all have one size, as a mask (subsets, items) or as they are. Of
    groups with very many members (small probabilities) only the `wanted` ones may be asked for, where probabilities are
    given.
    """
    chance = np.full(n_items, (size or 0) / n_items) if probabilities is None else np.asarray(probabilities, float)
    steps = np.arange(per_group)[slice(None) if wanted is None else slice(wanted.start, wanted.stop)] / per_group
    if sampling == "bernoulli":
        return lambda raw: _flip_coins(raw[:, :n_items], chance, steps)
    if size is None:
        return lambda raw: _systematic(raw, chance, steps)
    if per_group == 1:
        return lambda raw: _smallest_keys(raw[:, :n_items], size)
    return lambda raw: _cut_blocks(raw[:, :n_items], size, per_group)


def _smallest_keys(raw: Keys, size: int) -> NDArray[Any]:
    """The `size` items with the smallest keys: uniform over subsets, and a prefix of the permutation of the keys."""
    n_items = raw.shape[1]
    if size == n_items:
        return np.broadcast_to(np.arange(n_items), raw.shape)
    keys, mask = _numbered(raw)
    keys.partition(size - 1, axis=1)
    return _ascending(keys[:, :size] & mask, n_items)


def _cut_blocks(raw: Keys, size: int, per_group: int) -> NDArray[Any]:
    """Consecutive blocks of one permutation, or everything but such a block when subsets exceed one half."""
    n_groups, n_items = raw.shape
    block = min(size, n_items - size)
    order = key_order(raw)[:, : per_group * block].reshape(n_groups * per_group, block)
    if block == size:
        return _ascending(order, n_items)
    kept = np.ones((len(order), n_items), dtype=bool)
    np.put_along_axis(kept, order, False, axis=1)
    return kept


def _flip_coins(raw: Keys, chance: NDArray[np.float64], steps: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Item j joins member b of a group when frac(u_j + b / per_group) < chance_j: coin flips that avoid each other."""
    u = _uniform(raw)[:, None, :] + steps[:, None]
    return ((u % 1.0) < chance).reshape(-1, len(chance))


def _systematic(raw: Keys, chance: NDArray[np.float64], steps: NDArray[np.float64]) -> Subsets:
    """Systematic sampling in random order: lay the probabilities end to end and pick at unit steps.

    Member b of a group starts its steps at frac(u + b / per_group). Item j, laid on [low_j, high_j), is picked when a
    point u + integer falls there, which has probability exactly chance_j.
    """
    n_groups, n_items = len(raw), len(chance)
    order, start = key_order(raw[:, :n_items]), _uniform(raw[:, n_items])
    # a search for the points of every order costs less than a look at all items
    high = np.cumsum(chance[order], axis=1)
    span = float(np.ceil(high[:, -1].max(initial=0.0))) + 1
    points = ((start[:, None] + steps) % 1.0)[:, :, None] + np.arange(int(span))  # (groups, members, steps)
    there = points < high[:, -1, None, None]
    group, member, _ = np.nonzero(there)
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=(1, 2)))])
    places = np.empty(len(group), dtype=np.int64)
    for g in range(n_groups):
        here = slice(ends[g], ends[g + 1])
        places[here] = np.searchsorted(high[g], points[g][there[g]], side="right")
    items = order[group, np.minimum(places, n_items - 1)]
    number = group * len(steps) + member
    picked = np.sort(number * n_items + items)
    owner, items = np.divmod(picked[np.diff(picked, prepend=-1) > 0], n_items)  # rounding may pick an item twice
    count = np.bincount(owner, minlength=n_groups * len(steps))
    return Subsets(n_items, np.concatenate([[0], np.cumsum(count)]), items)


# Random keys


def raw_keys(width: int, start: int, stop: int, seed: int, stream: int, attempt: int = 0) -> NDArray[np.uint64]:
    """Rows `start` to `stop` of an endless table of 64-bit keys; row r starts at its own counter value."""
    counters = -(-width // 4)  # Philox gives four numbers for each counter value
    key = np.random.SeedSequence(seed, spawn_key=(stream, attempt)).generate_state(2, np.uint64)
    bits = np.random.Philox(key=key, counter=start * counters)
    return bits.random_raw((stop - start) * counters * 4).reshape(stop - start, counters * 4)[:, :width]


def key_order(raw: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Items in the order of their keys, row by row."""
    if raw.shape[1] > FEW_ITEMS:
        return _by_all_bits(raw)
    # half of the bits sort several times as fast and rarely tie; the other half decides between two that do
    keys, mask = _numbered((raw >> np.uint64(32)).astype(np.uint32))
    keys.sort(axis=1)
    row, j = np.nonzero((keys[:, 1:] ^ keys[:, :-1]) <= mask)
    found = (keys & mask).astype(np.int64)
    first, second = found[row, j], found[row, j + 1]
    swap = raw[row, first] > raw[row, second]
    found[row[swap], j[swap]], found[row[swap], j[swap] + 1] = second[swap], first[swap]
    three = row[1:][(np.diff(row) == 0) & (np.diff(j) == 1)]
    found[three] = _by_all_bits(raw[three])
    return found


def _by_all_bits(raw: NDArray[np.uint64]) -> NDArray[np.int64]:
    keys, mask = _numbered(raw)
    keys.sort(axis=1)
    keys &= mask
    return keys.view(np.int64)


def _numbered(raw: NDArray[U]) -> tuple[NDArray[U], U]:
    """Keys whose last bits are the item's number, and the mask of these bits.

    Sorting values, twice as fast as sorting indices, then gives the order; enough bits stay for ties to be out of the
    question.
    """
    mask = raw.dtype.type((1 << max(1, int(raw.shape[1] - 1).bit_length())) - 1)
    keys = np.bitwise_and(raw, ~mask)
    keys |= np.arange(raw.shape[1], dtype=raw.dtype)
    return keys, mask


def _ascending(items: NDArray[Any], n_items: int) -> NDArray[Any]:
    """Rows of item numbers, sorted; half as many bytes sort several times as fast."""
    return np.sort(items.astype(np.int32) if n_items <= 2**31 else items, axis=1)


def _uniform(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in [0, 1) from keys."""
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def row_groups(first: int, count: int, n_groups: int, seed: int) -> NDArray[np.uint64]:
    """Groups of `count` rows from row `first` on: each depends on the seed and on the row's number alone."""
    key = np.random.SeedSequence(seed, spawn_key=(GROUPS,)).generate_state(2, np.uint64)
    skip = first % 4  # Philox gives four numbers for each counter value
    raw = np.random.Philox(key=key, counter=first // 4).random_raw(skip + count)[skip:]
    return raw % np.uint64(n_groups)
