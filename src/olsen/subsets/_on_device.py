"""The columns of members drawn where the data are: the host's subsets bit for bit, as masks on the device.

The generator is the host's (Philox with 64-bit words, ten rounds), in the 64-bit integers that every library has:
signed ones, whose products wrap around as unsigned ones do, and whose shifts are masked. Keys are compared with their
sign bit turned, which is the order of unsigned numbers. Only subsets of one size are drawn here: systematic sampling
sums probabilities, and a device adds them in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution.arrays import Space
from .._execution.threads import cached_property
from ._compressed import Subsets
from ._design import Design
from ._drawing import COLUMNS, group_size, key_order

WORTH_IT = 1 << 17  # random numbers, some milliseconds of the host, from which hundreds of launches pay
CHUNK_BYTES = 5e8  # working arrays where a library does not say how much memory there is
KEY_BYTES = 100  # of all working arrays, for each key
MULTIPLIERS, WEYL = (0xD2E7470EE14C6C93, 0xCA5A826395121157), (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)  # of Philox
LOW = (1 << 32) - 1


@dataclass(frozen=True)
class DeviceSubsets:
    """Subsets as a mask (items, k) on a device, and their sizes on the host; lists of items are made if asked for."""

    mask: Any
    sizes: NDArray[np.int64]
    space: Space

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, i: int) -> Any:
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


def draw_on_device(design: Design, start: int, stop: int, space: Space) -> DeviceSubsets | None:
    """Columns of members `start` to `stop` on all rows, as :meth:`Design.draw` gives them; None: they are the host's.

    The host draws what is soon drawn, what differs in size, what would not fit on the device, and members' own rows.
    """
    shape, numbers = design.fixed_shape(), (stop - start) * design.n_columns
    if shape is None or shape[0] < design.n_rows or np.ndim(design.max_features) or not space.parallel:
        return None
    room = 0.0 if numbers < WORTH_IT else space.batch_bytes(CHUNK_BYTES)
    if numbers > room:
        return None
    return _subsets(design.n_columns, shape[1], design.kind, start, stop, (design.seed, COLUMNS, 0), space, room)


def _subsets(
    n_items: int, size: int, kind: str, start: int, stop: int, key: tuple[int, int, int], space: Space, room: float
) -> DeviceSubsets:
    """Blocks of one permutation for each group, or everything but such a block when subsets exceed one half."""
    xp, per_group = space.xp, int(group_size(size / n_items)) if kind == "balanced" else 1
    block = size if per_group == 1 else min(size, n_items - size)
    first, last = start // per_group, -(-stop // per_group)
    step = max(1, int(room // (KEY_BYTES * n_items)))
    number = xp.arange(per_group, device=space.device)
    parts = []
    for begin in range(first, last, step):
        raw = raw_keys(n_items + 1, begin, min(begin + step, last), key, space)
        rank = space.inverse_permutations(key_order(raw[:, :n_items], xp))
        place = xp.permute_dims(rank, (1, 0))[:, :, None] // block  # (items, groups, 1)
        held = place == number if block == size else place != number
        parts.append(xp.reshape(held, (n_items, -1)))
    skip = start - first * per_group
    mask = (xp.concat(parts, axis=1) if len(parts) > 1 else parts[0])[:, skip : skip + stop - start]
    return DeviceSubsets(mask, np.full(stop - start, size, dtype=np.int64), space)


def raw_keys(width: int, start: int, stop: int, key: tuple[int, int, int], space: Space) -> Any:
    """Rows `start` to `stop` of the host's table of 64-bit keys of (seed, stream, attempt), as signed integers."""
    xp, (seed, *spawn) = space.xp, key
    counters = -(-width // 4)
    words = np.random.SeedSequence(seed, spawn_key=tuple(spawn)).generate_state(2, np.uint64).tolist()
    own = _signed([[word + turn * step for word, step in zip(words, WEYL, strict=True)] for turn in range(10)], space)
    factors = _signed([[m & LOW for m in MULTIPLIERS], [m >> 32 for m in MULTIPLIERS], MULTIPLIERS], space)
    # NumPy steps its counter before it draws
    counter = xp.arange(start * counters + 1, stop * counters + 1, dtype=xp.int64, device=space.device)
    even, odd = xp.stack([counter, xp.zeros_like(counter)]), xp.zeros_like(xp.stack([counter, counter]))
    for turn in range(10):
        high, low = _products(even, factors)
        even, odd = xp.flip(high, axis=0) ^ odd ^ own[turn, :, :], xp.flip(low, axis=0)
    four = xp.stack([even[0, :], odd[0, :], even[1, :], odd[1, :]], axis=1)
    return xp.reshape(four, (stop - start, counters * 4))[:, :width]


def _signed(pairs: list[Any], space: Space) -> Any:
    """Pairs of unsigned words as signed ones on the device, (pairs, 2, 1): one transfer."""
    wrapped = np.array([[word % 2**64 for word in pair] for pair in pairs], dtype=np.uint64)
    return space.put(wrapped.view(np.int64)[:, :, None])


def _products(words: Any, factors: Any) -> tuple[Any, Any]:
    """High and low words of the 128-bit products of unsigned words (2, n) with two factors, from products of halves."""
    x, y, u, v = words & LOW, (words >> 32) & LOW, factors[0, :, :], factors[1, :, :]
    middle, other = y * u, x * v
    carry = (((x * u) >> 32) & LOW) + (middle & LOW) + (other & LOW)
    return y * v + ((middle >> 32) & LOW) + ((other >> 32) & LOW) + (carry >> 32), words * factors[2, :, :]
