"""Random keys of items, and the orders they give.

Keys come from a counter-based generator (Philox): those of a row are a function of the seed and of the row's number.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["ascending", "numbered", "order", "raw_keys", "row_groups", "uniform"]

U = TypeVar("U", np.uint32, np.uint64)

GROUPS = 2  # stream of the seed for groups of rows: members use 0 (columns) and 1 (rows)
FEW_ITEMS = 4000  # up to which three keys of a row seldom share their first bits


def raw_keys(width: int, start: int, stop: int, seed: int, stream: int, attempt: int = 0) -> NDArray[np.uint64]:
    """Rows `start` to `stop` of an endless table of 64-bit keys; row r starts at its own counter value."""
    counters = -(-width // 4)  # Philox gives four numbers for each counter value
    key = np.random.SeedSequence(seed, spawn_key=(stream, attempt)).generate_state(2, np.uint64)
    bits = np.random.Philox(key=key, counter=start * counters)
    return bits.random_raw((stop - start) * counters * 4).reshape(stop - start, counters * 4)[:, :width]


def order(raw: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Items in the order of their keys, row by row."""
    if raw.shape[1] > FEW_ITEMS:
        return _by_all_bits(raw)
    # half of the bits sort several times as fast and rarely tie; the other half decides between two that do
    keys, mask = numbered((raw >> np.uint64(32)).astype(np.uint32))
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
    keys, mask = numbered(raw)
    keys.sort(axis=1)
    keys &= mask
    return keys.view(np.int64)


def numbered(raw: NDArray[U]) -> tuple[NDArray[U], U]:
    """Keys whose last bits are the item's number, and the mask of these bits.

    Sorting values, twice as fast as sorting indices, then gives the order; enough bits stay for ties to be out of the
    question.
    """
    mask = raw.dtype.type((1 << max(1, int(raw.shape[1] - 1).bit_length())) - 1)
    keys = np.bitwise_and(raw, ~mask)
    keys |= np.arange(raw.shape[1], dtype=raw.dtype)
    return keys, mask


def ascending(items: NDArray[Any], n_items: int) -> NDArray[Any]:
    """Rows of item numbers, sorted; half as many bytes sort several times as fast."""
    return np.sort(items.astype(np.int32) if n_items <= 2**31 else items, axis=1)


def uniform(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in [0, 1) from keys."""
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def row_groups(first: int, count: int, n_groups: int, seed: int) -> NDArray[np.uint64]:
    """Groups of `count` rows from row `first` on: each depends on the seed and on the row's number alone."""
    key = np.random.SeedSequence(seed, spawn_key=(GROUPS,)).generate_state(2, np.uint64)
    skip = first % 4  # Philox gives four numbers for each counter value
    raw = np.random.Philox(key=key, counter=first // 4).random_raw(skip + count)[skip:]
    return raw % np.uint64(n_groups)
