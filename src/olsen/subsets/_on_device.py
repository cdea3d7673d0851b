"""The members of a design drawn where the data are: the host's subsets bit for bit, as masks on the device.

The generator is the host's (Philox with 64-bit words, ten rounds), in the 64-bit integers that every library has:
signed ones, whose products wrap around as unsigned ones do, and whose shifts are masked. Keys are compared with their
sign bit turned, which is the order of unsigned numbers. Only subsets of one size are drawn here: systematic sampling
sums probabilities, and a device adds them in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution.arrays import Space
from ._compressed import Subsets
from ._design import Design
from ._drawing import COLUMNS, ROWS, group_size

__all__ = ["DeviceSubsets", "draw_on_device", "order", "raw_keys"]

WORTH_IT = 1 << 17  # random numbers, some milliseconds of the host, from which hundreds of launches pay
CHUNK_BYTES = 5e8  # working arrays where a library does not say how much memory there is
KEY_BYTES = 100  # of all working arrays, for each key
ROUNDS = 10
MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
LOW = (1 << 32) - 1
SIGN = -(1 << 63)


@dataclass(frozen=True)
class DeviceSubsets:
    """Subsets as a mask (items, k) on a device, and their sizes on the host; lists of items are made if asked for."""

    mask: Any
    sizes: NDArray[np.int64]
    space: Space

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, i: int) -> NDArray[np.int64]:
        return self.listed[i]

    @cached_property
    def listed(self) -> Subsets:
        """The same in compressed form on the host."""
        return Subsets.from_mask(self.space.get(self.mask).T)

    def counts(self) -> NDArray[np.int64]:
        """How many subsets hold each item."""
        xp = self.space.xp
        return np.asarray(self.space.get(xp.sum(xp.astype(self.mask, xp.int64), axis=1)))

    def columns(self, members: NDArray[np.int64]) -> Any:
        """The mask of some members."""
        if len(members) == len(self):
            return self.mask
        return self.space.xp.take(self.mask, self.space.put(members), axis=1)


def draw_on_device(
    design: Design, start: int, stop: int, space: Space
) -> tuple[DeviceSubsets, DeviceSubsets | None] | None:
    """Columns and rows of members `start` to `stop`, as :meth:`Design.draw` gives them; None: they are the host's.

    The host draws what is soon drawn, what differs in size, and what would not fit on the device.
    """
    k, shape = stop - start, design.fixed_shape()
    if shape is None or np.ndim(design.max_features) or design.row_groups or not space.parallel:
        return None
    drawn = {COLUMNS: (design.n_columns, shape[1])}
    if shape[0] < design.n_rows:
        drawn[ROWS] = (design.n_rows, shape[0])
    numbers = k * sum(n_items for n_items, _ in drawn.values())
    room = 0.0 if numbers < WORTH_IT else space.batch_bytes(CHUNK_BYTES)
    if numbers > room:
        return None
    found = {
        stream: _subsets(n_items, size, design.kind, start, stop, (design.seed, stream, 0), space, room)
        for stream, (n_items, size) in drawn.items()
    }
    return found[COLUMNS], found.get(ROWS)


def _subsets(
    n_items: int, size: int, kind: str, start: int, stop: int, key: tuple[int, int, int], space: Space, room: float
) -> DeviceSubsets:
    """Blocks of one permutation for each group, or everything but such a block when subsets exceed one half."""
    xp, per_group = space.xp, group_size(size / n_items) if kind == "balanced" else 1
    block = size if per_group == 1 else min(size, n_items - size)
    first, last = start // per_group, -(-stop // per_group)
    step = max(1, int(room // (KEY_BYTES * n_items)))
    number = xp.arange(per_group, device=space.device)
    parts = []
    for begin in range(first, last, step):
        raw = raw_keys(n_items + 1, begin, min(begin + step, last), key, space)
        rank = space.inverse_permutations(order(raw[:, :n_items], space))
        place = xp.permute_dims(rank, (1, 0))[:, :, None] // block  # (items, groups, 1)
        held = place == number if block == size else place != number
        parts.append(xp.reshape(held, (n_items, -1)))
    skip = start - first * per_group
    mask = (xp.concat(parts, axis=1) if len(parts) > 1 else parts[0])[:, skip : skip + stop - start]
    return DeviceSubsets(mask, np.full(stop - start, size, dtype=np.int64), space)


def raw_keys(width: int, start: int, stop: int, key: tuple[int, int, int], space: Space) -> Any:
    """Rows `start` to `stop` of the host's table of 64-bit keys of (seed, stream, attempt), as signed integers.

    A round works on the even words (2, n) together. It would exchange the two; instead the next round takes them the
    other way round, and so do its factors and keys.
    """
    xp, (seed, *spawn) = space.xp, key
    counters = -(-width // 4)
    words = np.random.SeedSequence(seed, spawn_key=tuple(spawn)).generate_state(2, np.uint64).tolist()
    factors = [_Factors.of(pair, space) for pair in (MULTIPLIERS, MULTIPLIERS[::-1])]
    # NumPy steps its counter before it draws
    counter = xp.arange(start * counters + 1, stop * counters + 1, dtype=xp.int64, device=space.device)
    odd = xp.zeros((2, counter.shape[0]), dtype=xp.int64, device=space.device)
    even = xp.stack([counter, odd[0, :]])
    for turn, own in enumerate(_round_keys(words, space)):
        high, low = factors[turn % 2].times(even, space)
        even, odd = high ^ (xp.flip(odd, axis=0) ^ own), low
    four = xp.stack([even[0, :], odd[0, :], even[1, :], odd[1, :]], axis=1)
    return xp.reshape(four, (stop - start, counters * 4))[:, :width]


def _round_keys(words: list[int], space: Space) -> list[Any]:
    """Keys (2, 1) of all rounds, in the order that the words have after each."""
    rounds = [[w + turn * step for w, step in zip(words, WEYL, strict=True)] for turn in range(ROUNDS)]
    keys = _signed([pair if turn % 2 else pair[::-1] for turn, pair in enumerate(rounds)], space)
    return [keys[turn, :, :] for turn in range(ROUNDS)]


def _signed(pairs: list[Any], space: Space) -> Any:
    """Pairs of unsigned words as signed ones on the device, (pairs, 2, 1): one transfer."""
    wrapped = np.array([[w % 2**64 for w in pair] for pair in pairs], dtype=np.uint64)
    return space.put(wrapped.view(np.int64)[:, :, None])


@dataclass(frozen=True)
class _Factors:
    """Two unsigned words to multiply by, whole (2, 1) and as halves (halves, 2, 1), low ones first."""

    whole: Any
    halves: Any
    shifts: Any  # (halves, 1, 1) of a word

    @classmethod
    def of(cls, pair: tuple[int, ...], space: Space) -> _Factors:
        made = _signed([pair, [m & LOW for m in pair], [m >> 32 for m in pair]], space)
        return cls(made[0, :, :], made[1:, :, :], space.put(np.array([0, 32])[:, None, None]))

    def times(self, words: Any, space: Space) -> tuple[Any, Any]:
        """High and low words of the 128-bit products with unsigned words (2, n), from products of halves."""
        halves = (words >> self.shifts) & LOW
        products = space.xp.reshape(halves[:, None, :, :] * self.halves, (4, *words.shape))  # low and low first
        low, high = products & LOW, (products >> 32) & LOW
        carry = (high[0, :, :] + low[1, :, :] + low[2, :, :]) >> 32
        return products[3, :, :] + high[1, :, :] + high[2, :, :] + carry, words * self.whole


def order(raw: Any, space: Space) -> Any:
    """Items in the order of their keys, row by row; the last bits of a key are the item's number, as on the host."""
    n_items = raw.shape[1]
    mask = (1 << max(1, (n_items - 1).bit_length())) - 1
    numbered = (raw & ~mask) | space.xp.arange(n_items, dtype=space.xp.int64, device=space.device)
    return space.xp.sort(numbered ^ SIGN, axis=1) & mask
