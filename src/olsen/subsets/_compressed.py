"""Subsets in compressed form: one array of items for all members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._execution.threads import cached_property

# ``threads(function, n_items)`` calls ``function(start, stop)`` on chunks of ``range(n_items)``,
# possibly in threads, and returns the results in order
Threads = Callable[[Callable[[int, int], Any], int], list[Any]]


@dataclass(frozen=True)
class Subsets(Sequence[NDArray[np.int64]]):
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
    def from_lists(cls, lists: Sequence[ArrayLike], n_items: int) -> Subsets:
        """Collect index lists; each is sorted and must hold distinct items of ``range(n_items)``."""
        arrays = []
        for number, items in enumerate(lists):
            unique = np.unique(np.asarray(items, dtype=np.int64))
            if len(unique) < np.size(items):
                raise ValueError(
                    f"subset {number} names an item twice; subsets are drawn without replacement."
                )
            if len(unique) and (unique[0] < 0 or unique[-1] >= n_items):
                raise ValueError(
                    f"subset {number} holds items from {unique[0]} to {unique[-1]}, but there are"
                    f" only {n_items} items."
                )
            arrays.append(unique)
        return cls.stack(arrays, n_items)

    @classmethod
    def _from_mask(cls, mask: NDArray[np.bool_]) -> Subsets:
        """Subsets where each row of a mask is true."""
        return cls._of_sizes(mask.sum(axis=1), [np.nonzero(mask)[1]], mask.shape[1])

    @classmethod
    def stack(cls, arrays: Sequence[NDArray[np.int64]], n_items: int) -> Subsets:
        """Collect sorted index arrays without a check."""
        return cls._of_sizes([len(a) for a in arrays], arrays, n_items)

    @classmethod
    def _joined(cls, parts: Sequence[Subsets], n_items: int) -> Subsets:
        """Members of several draws, one after the other."""
        if len(parts) == 1:
            return parts[0]
        no_sizes = np.empty(0, dtype=np.int64)
        sizes = np.concatenate([no_sizes, *(part.sizes for part in parts)])
        return cls._of_sizes(sizes, [part.indices for part in parts], n_items)

    @classmethod
    def _of_sizes(
        cls, sizes: ArrayLike, indices: Sequence[NDArray[np.int64]], n_items: int
    ) -> Subsets:
        """Subsets of the given sizes, one after the other in `indices`."""
        no_items = np.empty(0, dtype=np.int64)
        indptr = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        return cls(n_items, indptr, np.concatenate([no_items, *indices]))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, i: int | slice) -> Any:
        """A subset, or for a slice several subsets."""
        k = len(self)
        if isinstance(i, slice):
            return self.take(range(*i.indices(k)))
        if not -k <= i < k:
            raise IndexError(f"there is no subset {i}; there are {k}, numbered 0 to {k - 1}.")
        return self.indices[self.indptr[i % k] : self.indptr[i % k + 1]]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of items in each subset."""
        return np.diff(self.indptr)

    def counts(self) -> NDArray[np.int64]:
        """Number of subsets that hold each item."""
        return np.bincount(self.indices, minlength=self.n_items)

    def mask(self) -> NDArray[np.bool_]:
        """Boolean array of shape (k, n_items): True where an item belongs to a subset."""
        mask = np.zeros((len(self), self.n_items), dtype=bool)
        first = np.repeat(np.arange(len(self)) * self.n_items, self.sizes)
        mask.reshape(-1)[first + self.indices] = True  # half the time of a pair of indices
        return mask

    def complement(self) -> Subsets:
        """Items that each subset lacks."""
        return self._from_mask(~self.mask())

    def take(self, members: Sequence[int] | NDArray[np.int64] | range) -> Subsets:
        """Selected members, in the order of `members`."""
        return self.stack([self[i] for i in members], self.n_items)

    def slice(self, start: int, stop: int) -> Subsets:
        """Members ``start`` to ``stop``, without copying the indices."""
        first = self.indptr[start]
        last = self.indptr[stop]
        return Subsets(
            self.n_items, self.indptr[start : stop + 1] - first, self.indices[first:last]
        )
