"""Subsets in compressed form: one array of items for all members."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["WORTH_SHARING", "Mapper", "Subsets"]

WORTH_SHARING = 1 << 19  # random numbers, about six milliseconds, from which threads pay

T = TypeVar("T")


class Mapper(Protocol):
    """``mapper(function, n_items)`` calls ``function(start, stop)`` on chunks of ``range(n_items)``.

    It may use threads, and returns the results in order.
    """

    def __call__(self, function: Callable[[int, int], T], n_items: int, /) -> list[T]: ...


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
        """Collect given index lists; each is sorted and must hold distinct items of ``range(n_items)``."""
        arrays = [np.unique(np.asarray(items, dtype=np.int64)) for items in lists]
        for number, (given, unique) in enumerate(zip(lists, arrays, strict=True)):
            if np.size(given) != len(unique):
                raise ValueError(f"subset {number} names an item twice; subsets are drawn without replacement.")
            if len(unique) and (unique[0] < 0 or unique[-1] >= n_items):
                raise ValueError(
                    f"subset {number} holds items from {unique[0]} to {unique[-1]}, but there are only {n_items} items "
                    f"(0 to {n_items - 1})."
                )
        return cls.stack(arrays, n_items)

    @classmethod
    def from_mask(cls, mask: NDArray[np.bool_]) -> Subsets:
        """Subsets where each row of a mask is true."""
        indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1), dtype=np.int64)])
        return cls(mask.shape[1], indptr, np.nonzero(mask)[1].astype(np.int64))

    @classmethod
    def stack(cls, arrays: Sequence[NDArray[np.int64]], n_items: int) -> Subsets:
        """Collect sorted index arrays as they are."""
        indptr = np.concatenate([[0], np.cumsum([len(a) for a in arrays], dtype=np.int64)])
        indices = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)
        return cls(n_items, indptr.astype(np.int64), indices.astype(np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Subsets], n_items: int = 0) -> Subsets:
        """Members of several draws, one after the other; `n_items` is needed where there are no draws."""
        if len(parts) == 1:
            return parts[0]
        sizes = np.concatenate([part.sizes for part in parts]) if parts else np.empty(0, dtype=np.int64)
        indices = np.concatenate([part.indices for part in parts]) if parts else np.empty(0, dtype=np.int64)
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return cls(parts[0].n_items if parts else n_items, ends, indices)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @overload
    def __getitem__(self, i: int) -> NDArray[np.int64]: ...

    @overload
    def __getitem__(self, i: slice) -> Subsets: ...

    def __getitem__(self, i: int | slice) -> NDArray[np.int64] | Subsets:
        if isinstance(i, slice):
            start, stop, step = i.indices(len(self))
            return self.slice(start, max(start, stop)) if step == 1 else self.take(range(start, stop, step))
        k = len(self)
        if not -k <= i < k:
            raise IndexError(f"there is no subset {i}; there are {k}, numbered 0 to {k - 1}.")
        i = i % k
        return self.indices[self.indptr[i] : self.indptr[i + 1]]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return (self[i] for i in range(len(self)))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of items in each subset."""
        return np.diff(self.indptr)

    def counts(self, mapper: Mapper | None = None) -> NDArray[np.int64]:
        """How many subsets hold each item; `mapper` as in :func:`draw`."""

        def work(start: int, stop: int) -> NDArray[np.int64]:
            return np.bincount(self.indices[start:stop], minlength=self.n_items)

        n = len(self.indices)
        parts = [work(0, n)] if mapper is None or n < WORTH_SHARING else mapper(work, n)
        return np.asarray(np.sum(parts, axis=0), dtype=np.int64)

    def mask(self, mapper: Mapper | None = None) -> NDArray[np.bool_]:
        """Boolean array of shape (k, n_items): True where an item belongs to a subset; `mapper` as in :func:`draw`."""
        mask = np.zeros((len(self), self.n_items), dtype=bool)

        def work(start: int, stop: int) -> None:
            part = self.slice(start, stop)
            first, sizes = np.arange(start, stop) * self.n_items, part.sizes
            if len(part) and sizes.min() == sizes.max():
                places = (first[:, None] + part.indices.reshape(len(part), -1)).reshape(-1)
            else:
                places = np.repeat(first, sizes) + part.indices
            mask.reshape(-1)[places] = True  # half the time of a pair of indices

        if mapper is None or len(self.indices) < WORTH_SHARING:
            work(0, len(self))
        else:
            mapper(work, len(self))
        return mask

    def complement(self) -> Subsets:
        """What each subset leaves out."""
        return self.from_mask(~self.mask())

    def take(self, members: Sequence[int] | NDArray[np.int64] | range) -> Subsets:
        """Only these members, in this order."""
        return self.stack([self[i] for i in members], self.n_items)

    def slice(self, start: int, stop: int) -> Subsets:
        """Members ``start`` to ``stop``, without copying the indices."""
        first, last = self.indptr[start], self.indptr[stop]
        return Subsets(self.n_items, self.indptr[start : stop + 1] - first, self.indices[first:last])
