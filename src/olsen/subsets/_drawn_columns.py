"""Columns that members draw from: an order of some of the columns, or groups of which a member takes one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._compressed import Subsets

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class DrawnColumns:
    """Items that are drawn in the place of columns.

    Parameters
    ----------
    columns : ndarray of shape (n_drawn,)
        Columns from which members are drawn; those of an item are neighbours.
    starts : ndarray of shape (n_items,) or None, default=None
        Position in `columns` of the first column of every item; None: every column is an item.

    Examples
    --------
    >>> import numpy as np
    >>> from olsen.subsets import draw
    >>> from olsen.subsets._drawn_columns import DrawnColumns
    >>> pairs = DrawnColumns.of_groups(np.array([0, 0, 1, 1, 2, 2]))
    >>> items = draw(pairs.n_items, 2, rng=0, size=2)
    >>> [
    ...     sorted(set(subset // 2))
    ...     for subset in pairs.of_members(items, 6, start=0, seed=0)
    ... ] == [subset.tolist() for subset in items]
    True
    """

    columns: Indices
    starts: Indices | None = None

    @classmethod
    def of_groups(cls, group: Indices) -> DrawnColumns:
        """Items of which a member takes one column, from the number of the group of every column."""
        columns = np.argsort(group, kind="stable")
        return cls(columns, np.flatnonzero(np.diff(group[columns], prepend=-1)))

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.columns if self.starts is None else self.starts)

    @property
    def sizes(self) -> Indices:
        """Number of columns of every item."""
        if self.starts is None:
            return np.ones(len(self.columns), dtype=np.int64)
        return np.diff(self.starts, append=len(self.columns))

    def of_members(self, items: Subsets, n_columns: int, *, start: int, seed: int) -> Subsets:
        """Columns of members that draw `items`; the first is member number `start`."""
        members = np.repeat(np.arange(start, start + len(items)), items.sizes)
        columns = self.at(items.indices, members, seed)
        owners = np.repeat(np.arange(len(items)), items.sizes)
        in_order = columns[np.lexsort((columns, owners))]
        return Subsets(n_columns, items.indptr, in_order)

    def at(self, items: Indices, members: Indices, seed: int) -> Indices:
        """Column of each of some items, a function of the seed, the member and the item."""
        if self.starts is None:
            return np.asarray(self.columns[items])
        position = _random_bits(seed, members, items) % self.sizes[items].astype(np.uint64)
        return np.asarray(self.columns[self.starts[items] + position.astype(np.int64)])


def _random_bits(seed: int, members: Indices, items: Indices) -> NDArray[np.uint64]:
    """Random numbers of 64 bits for pairs of a member and an item, by the finaliser of SplitMix64."""
    key = np.uint64(np.random.SeedSequence(seed, spawn_key=(4,)).generate_state(1, np.uint64)[0])
    bits = members.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ (
        items.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F) + key
    )
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))
