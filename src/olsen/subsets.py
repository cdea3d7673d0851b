r"""Which rows and columns each member sees, as a pure function of (seed, member).

Member :math:`i` of an ensemble is defined by a column subset :math:`S_i` and a row subset :math:`T_i`. Both are drawn
from a counter-based generator (Philox) whose counter is set from the member's own number, so member ``i`` never depends
on how many members there are, on threads, or on how the draw is cut into chunks.

Two sampling laws (paper, section 3): *fixed* sizes, uniform over all subsets of that size, and *bernoulli* coin flips.
Two designs: *independent* members, as in the paper, and *balanced* ones, where the members of a group share one random
permutation (or one uniform number per item) and overlap as little as they can. Every member alone has the same law
under both designs; only the overlaps differ, and smaller overlaps mean lower risk for the same number of members.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _keys, _laws

__all__ = ["Subsets", "draw", "draw_members", "group_size", "permutations", "resolve_size"]

COLUMNS, ROWS = 0, 1  # the two streams of a seed
_CHUNK_ITEMS = 1 << 22  # random numbers held at a time
_WORTH_SHARING = 1 << 19  # random numbers, about six milliseconds, from which threads pay
_MAX_ATTEMPTS = 1000


@dataclass(frozen=True)
class Subsets:
    """Subsets of ``range(n_items)`` in compressed form, like the pattern of a CSR matrix.

    Parameters
    ----------
    n_items : int
        Number of items subsets are drawn from.
    indptr : ndarray of shape (k + 1,)
        Subset ``i`` is ``indices[indptr[i]:indptr[i + 1]]``.
    indices : ndarray of shape (indptr[-1],)
        Items of all subsets, ascending within each.

    Examples
    --------
    >>> from olsen.subsets import Subsets
    >>> pair = Subsets.from_lists([[0, 2], [1]], n_items=3)
    >>> len(pair), pair[0].tolist(), pair.sizes.tolist()
    (2, [0, 2], [2, 1])
    """

    n_items: int
    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]

    @classmethod
    def from_lists(cls, lists, n_items: int) -> Subsets:
        """Collect given index lists; each is sorted and must hold distinct items of ``range(n_items)``."""
        arrays = [np.unique(np.asarray(items, dtype=np.int64)) for items in lists]
        for number, (given, unique) in enumerate(zip(lists, arrays, strict=True)):
            if len(given) != len(unique):
                raise ValueError(f"subset {number} names an item twice; subsets are drawn without replacement.")
            if len(unique) and (unique[0] < 0 or unique[-1] >= n_items):
                raise ValueError(
                    f"subset {number} holds items from {unique[0]} to {unique[-1]}, but there are only {n_items} items "
                    f"(0 to {n_items - 1})."
                )
        return cls._stack(arrays, n_items)

    @classmethod
    def _stack(cls, arrays: list[NDArray], n_items: int) -> Subsets:
        indptr = np.concatenate([[0], np.cumsum([len(a) for a in arrays], dtype=np.int64)])
        indices = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)
        return cls(n_items, indptr.astype(np.int64), indices.astype(np.int64))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, i: int) -> NDArray[np.int64]:
        return self.indices[self.indptr[i] : self.indptr[i + 1]]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return (self[i] for i in range(len(self)))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of items in each subset."""
        return np.diff(self.indptr)

    def counts(self, mapper=None) -> NDArray[np.int64]:
        """How many subsets hold each item; `mapper` as in :func:`draw`."""

        def work(start, stop):
            return np.bincount(self.indices[start:stop], minlength=self.n_items)

        return np.sum(_share(work, len(self.indices), len(self.indices), mapper), axis=0)

    def mask(self, mapper=None) -> NDArray[np.bool_]:
        """Boolean array of shape (k, n_items): True where an item belongs to a subset; `mapper` as in :func:`draw`."""
        mask = np.zeros((len(self), self.n_items), dtype=bool)

        def work(start, stop):
            part = self.slice(start, stop)
            first, sizes = np.arange(start, stop) * self.n_items, part.sizes
            if len(part) and sizes.min() == sizes.max():
                places = (first[:, None] + part.indices.reshape(len(part), -1)).reshape(-1)
            else:
                places = np.repeat(first, sizes) + part.indices
            mask.reshape(-1)[places] = True  # half the time of a pair of indices

        _share(work, len(self), len(self.indices), mapper)
        return mask

    def complement(self) -> Subsets:
        """What each subset leaves out."""
        return _from_mask(~self.mask())

    def take(self, members) -> Subsets:
        """Only these members, in this order."""
        return self._stack([self[i] for i in members], self.n_items)

    def slice(self, start: int, stop: int) -> Subsets:
        """Members ``start`` to ``stop``, without copying the indices."""
        first, last = self.indptr[start], self.indptr[stop]
        return Subsets(self.n_items, self.indptr[start : stop + 1] - first, self.indices[first:last])

    def concatenate(self, other: Subsets) -> Subsets:
        """These members followed by the other ones."""
        indptr = np.concatenate([self.indptr, self.indptr[-1] + other.indptr[1:]])
        return Subsets(self.n_items, indptr, np.concatenate([self.indices, other.indices]))


def resolve_size(size, n_items: int, name: str) -> int:
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
    return max(1, math.floor(size * n_items + 1e-9))  # 0.29 * 100 is 28.999...


def group_size(fraction: float) -> int:
    """Members that share one permutation in the balanced design.

    Up to one half, disjoint blocks: floor(1/fraction). Above, disjoint *left-out* blocks: floor(1/(1-fraction)).

    Examples
    --------
    >>> from olsen.subsets import group_size
    >>> group_size(0.25), group_size(0.8), group_size(1.0)
    (4, 5, 1)
    """
    smaller = min(fraction, 1 - fraction)
    return 1 if smaller <= 0 else max(1, math.floor(1 / smaller + 1e-9))


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
    return _keys.order(_keys.raw_keys(n_items + 1, start, stop, seed, stream)[:, :n_items])


def draw(
    n_items: int,
    stop: int,
    *,
    seed: int,
    size: int | None = None,
    probabilities=None,
    sampling: str = "fixed",
    design: str = "independent",
    start: int = 0,
    stream: int = COLUMNS,
    attempt: int = 0,
    mapper=None,
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
    fraction = size / n_items if size is not None else float(np.mean(probabilities))
    per_group = group_size(fraction) if design == "balanced" else 1
    if sampling == "bernoulli" or probabilities is not None:
        per_group = min(per_group, max(1, _CHUNK_ITEMS // n_items))  # the group is laid out as a mask
    law = _laws.law(n_items, size, probabilities, sampling, per_group)
    first, last = start // per_group, -(-stop // per_group)

    def draw_groups(begin, end):
        at_once = max(1, _CHUNK_ITEMS // max(1, n_items))
        bounds = [(a, min(a + at_once, end)) for a in range(begin, end, at_once)]
        keys = (_keys.raw_keys(n_items + 1, first + a, first + b, seed, stream, attempt) for a, b in bounds)
        return [_from_array(law(rows), n_items) for rows in keys]

    parts = list(chain.from_iterable(_share(draw_groups, last - first, (last - first) * n_items, mapper)))
    drawn = _join(parts, n_items)
    skip = start - start // per_group * per_group
    return drawn.slice(skip, skip + stop - start)


def _share(work, n_items, numbers, mapper):
    """Results of ``work(start, stop)`` on chunks, few ones: they take turns at the interpreter."""
    if mapper is None or numbers < _WORTH_SHARING:
        return [work(0, n_items)]
    return mapper(work, n_items, chunk=-(-n_items // 8))


def draw_members(
    n_rows: int,
    n_columns: int,
    stop: int,
    *,
    seed: int,
    max_features=0.5,
    max_samples=1.0,
    sampling: str = "fixed",
    design: str = "independent",
    fit_intercept: bool = False,
    distinct_rows: int | None = None,
    start: int = 0,
    mapper=None,
) -> tuple[Subsets, Subsets | None]:
    r"""Column and row subsets of members ``start`` to ``stop``.

    Coin flips follow the paper's rejection rule: a member with :math:`|S_i| \ge |T_i| - 1` has infinite expected risk
    and is drawn again (an intercept takes one more row). Where more columns than rows are expected, members are
    minimum-norm interpolators and the rule is mirrored: :math:`|S_i| > |T_i| + 1`.

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
    columns = _law(max_features, n_columns, "max_features")
    rows = _law(max_samples, n_rows, "max_samples")

    def draw_both(first, last, attempt):
        how: dict[str, Any] = {"seed": seed, "sampling": sampling, "design": design, "start": first}
        how |= {"attempt": attempt, "mapper": mapper}
        features = draw(n_columns, last, stream=COLUMNS, **columns, **how)
        return features, None if rows.get("size") == n_rows else draw(n_rows, last, stream=ROWS, **rows, **how)

    features, samples = draw_both(start, stop, 0)
    if sampling == "fixed":
        return features, samples
    expected_columns = columns.get("size", np.sum(columns.get("probabilities", 0.0)))
    expected_rows = rows["size"] if samples is not None or distinct_rows is None else distinct_rows
    overdetermined = expected_columns <= expected_rows - 1 - fit_intercept
    all_rows = (n_rows if distinct_rows is None else distinct_rows) - fit_intercept
    return _redraw_rejected(features, samples, draw_both, start, all_rows, fit_intercept, overdetermined)


def _law(size, n_items, name):
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


def _redraw_rejected(features, samples, draw_both, start, all_rows, lost_rows, overdetermined):
    """Replace rejected members by their next attempt, until none is rejected."""
    rows = np.full(len(features), all_rows) if samples is None else samples.sizes - lost_rows
    kept_features, kept_samples = list(features), list(samples) if samples is not None else []
    size = features.sizes.copy()
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        rejected = np.flatnonzero(size >= rows - 1 if overdetermined else size <= rows + 1)
        if not len(rejected):
            same = attempt == 1
            return (features, samples) if same else _restack(features, samples, kept_features, kept_samples)
        for i in rejected:
            new_features, new_samples = draw_both(start + i, start + i + 1, attempt)
            kept_features[i], size[i] = new_features[0], new_features.sizes[0]
            if new_samples is not None:
                kept_samples[i], rows[i] = new_samples[0], new_samples.sizes[0] - lost_rows
    raise ValueError(
        f"coin flips were rejected {_MAX_ATTEMPTS} times in a row: a member must have at least two rows more than "
        f"columns (or, interpolating, two columns more than rows), but about {np.mean(features.sizes):.1f} columns "
        f"meet {np.mean(rows):.1f} rows. Move max_features or max_samples apart, or use sampling='fixed'."
    )


def _restack(features, samples, kept_features, kept_samples):
    new_features = Subsets._stack(kept_features, features.n_items)
    return new_features, None if samples is None else Subsets._stack(kept_samples, samples.n_items)


def _from_array(drawn, n_items):
    """Subsets from a mask, or from rows of items."""
    return _from_mask(drawn) if drawn.dtype == bool else _from_rows(drawn, n_items)


def _from_rows(rows, n_items):
    count, size = rows.shape
    indptr = np.arange(count + 1, dtype=np.int64) * size
    return Subsets(n_items, indptr, np.ascontiguousarray(rows, dtype=np.int64).reshape(-1))


def _from_mask(mask):
    indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1), dtype=np.int64)])
    return Subsets(mask.shape[1], indptr, np.nonzero(mask)[1].astype(np.int64))


def _join(parts: list[Subsets], n_items: int) -> Subsets:
    if len(parts) == 1:
        return parts[0]
    sizes = np.concatenate([p.sizes for p in parts]) if parts else np.empty(0, dtype=np.int64)
    indices = np.concatenate([p.indices for p in parts]) if parts else np.empty(0, dtype=np.int64)
    return Subsets(n_items, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), indices)
