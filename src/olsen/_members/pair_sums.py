"""Sums over antithetic pairs of members of what they miss left-out rows by, for every size along their paths.

All members of a batch are factored, then threads share the rows. What the kernel does not trust (members with nearly
dependent columns, rows that a size fits exactly although others are like them) goes through :mod:`._members.path`, one
member after the other. The sums do not depend on threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import _kernel
from .._execution.threads import Sharing
from .._trust import SMALLEST_PIVOT
from .path import LANES, Laid, LaidRows, PathData, predictions, prefix_residuals

__all__ = ["Pairs", "Sums", "sum_pairs", "sum_trusted"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

LARGEST_STORE = 1 << 26  # numbers that the factors at work take together
SMALL = 2e7  # flops that are done before a second thread has begun
MOST_PANELS = 32  # of rows that a thread takes at a time: what one call works on without a break


@dataclass(frozen=True)
class Pairs:
    """Members 2i and 2i + 1 are pair i, whose sizes go to the sums from place `slots[i]` on."""

    orders: list[NDArray[np.int64]]  # columns of each member
    sizes: list[NDArray[np.int64]]  # of each member; the last is at most as long as its order
    slots: NDArray[np.int64]
    n_slots: int

    @classmethod
    def nested(cls, orders: list[NDArray[np.int64]], sizes: NDArray[np.int64]) -> Pairs:
        """All sizes of every member along its order."""
        return cls([o[: sizes[-1]] for o in orders], [sizes] * len(orders), np.zeros(len(orders) // 2, int), len(sizes))

    @classmethod
    def drawn(cls, orders: list[NDArray[np.int64]], n_sizes: int) -> Pairs:
        """Every size a member of its own: `orders` lists all sizes of one, then of the next."""
        together = [orders[i : i + n_sizes] for i in range(0, len(orders), n_sizes)]
        pairs = [pair for a, b in zip(together[::2], together[1::2], strict=True) for pair in zip(a, b, strict=True)]
        flat = [order for pair in pairs for order in pair]
        slots = np.tile(np.arange(n_sizes), len(together) // 2)
        return cls(flat, [np.array([len(order)]) for order in flat], slots, n_sizes)

    def in_batches(self, count: int) -> Pairs:
        """The same with sums of their own for every `count` pairs, one batch after the other."""
        batch = np.arange(len(self)) // count
        return Pairs(self.orders, self.sizes, self.slots + self.n_slots * batch, self.n_slots * (int(batch[-1]) + 1))

    def __len__(self) -> int:
        return len(self.slots)

    def take(self, start: int, stop: int) -> Pairs:
        """Some of the pairs."""
        return Pairs(self.orders[2 * start : 2 * stop], self.sizes[2 * start : 2 * stop], self.slots[start:stop],
                     self.n_slots)  # fmt: skip


@dataclass
class Sums:
    """Sums (sizes, n, q) over pairs: of residuals, of their squares, of the squares of the pairs' means."""

    total: NDArray[np.float64]
    square: NDArray[np.float64]
    pair_square: NDArray[np.float64]

    @classmethod
    def zero(cls, n_slots: int, n: int, q: int) -> Sums:
        """Of no pair."""
        return cls(*(np.zeros((n_slots, n, q)) for _ in range(3)))

    def split(self, n_slots: int) -> Iterator[Sums]:
        """Sums of batches, of so many sizes each."""
        for start in range(0, len(self.total), n_slots):
            here = slice(start, start + n_slots)
            yield Sums(self.total[here], self.square[here], self.pair_square[here])

    def add(self, slot: int, first: Array, second: Array, rows: Indices | slice = slice(None)) -> None:
        """One pair's residuals (sizes, n, q), at some rows only or at all."""
        a, b = first[:, rows], second[:, rows]
        here = slice(slot, slot + len(first))
        self.total[here, rows] += a + b
        self.square[here, rows] += a**2 + b**2
        self.pair_square[here, rows] += ((a + b) / 2) ** 2

    def clear(self, rows: Indices) -> None:
        """Forget some rows."""
        for sums in (self.total, self.square, self.pair_square):
            sums[:, rows] = 0.0


def sum_pairs(data: PathData, pairs: Pairs, mapper: Sharing, rows: LaidRows | None = None) -> Sums:
    """The sums of all pairs: on all rows, left out one at a time, or on `rows` that members were not given."""
    rows = data.laid_out.rows if rows is None else rows
    n, q = rows.n, data.Y.shape[1]
    longest = max((len(order) for order in pairs.orders), default=0)
    flops = sum(len(order) * (1e4 + len(order) * (2.0 * n + len(order) / 3)) for order in pairs.orders)
    if not longest:
        out = Sums.zero(pairs.n_slots, n, q)
        _add_by_hand(out, data, rows, pairs, np.arange(len(pairs)), None, mapper)
        return out
    mapper = mapper if flops > SMALL else Sharing()
    return _compiled_sums(data, rows, pairs, longest, mapper)


def sum_trusted(
    laid: Laid, rows: LaidRows, pairs: Pairs, mapper: Sharing
) -> tuple[Sums, int, NDArray[np.bool_]] | None:
    """The sums of the pairs that the kernel trusts, their number, and rows whose sums only a refit would tell.

    None if there are fewer than two such pairs.
    """
    longest = max(len(order) for order in pairs.orders)
    sums, states, left = _all_compiled(laid, rows, pairs, longest, mapper)
    count = len(pairs) - len(left)
    out = Sums(*(np.moveaxis(one[:, :, : rows.n], 1, 2) for one in sums))
    return (out, count, states[: rows.n] > 0) if count > 1 else None


def _compiled_sums(data: PathData, rows: LaidRows, pairs: Pairs, longest: int, mapper: Sharing) -> Sums:
    sums, states, by_hand = _all_compiled(data.laid_out, rows, pairs, longest, mapper)
    out = Sums(*(np.moveaxis(one[:, :, : rows.n], 1, 2) for one in sums))
    again = np.flatnonzero(states[: rows.n])
    if len(again):
        out.clear(again)
        _add_by_hand(out, data, rows, pairs, np.setdiff1d(np.arange(len(pairs)), by_hand), again, mapper)
    _add_by_hand(out, data, rows, pairs, by_hand, None, mapper)
    return out


def _all_compiled(
    laid: Laid, rows: LaidRows, pairs: Pairs, longest: int, mapper: Sharing
) -> tuple[Array, Indices, Indices]:
    """Sums (3, sizes, q, rows) of the pairs that are believed, the state of every row, and the other pairs."""
    padded, q = rows.A.shape[1], rows.Y.shape[1]
    sums = np.zeros((3, pairs.n_slots, q, padded))
    room = _kernel.member_size(longest, q)
    step = max(1, LARGEST_STORE // (2 * room))
    store = np.empty((2 * min(step, len(pairs)), room))
    states = np.zeros(padded, dtype=np.int64)
    left: list[int] = []
    for start in range(0, len(pairs), step):
        part = pairs.take(start, min(start + step, len(pairs)))
        left.extend(start + _add_compiled(sums, states, laid, rows, part, store[: 2 * len(part)], mapper))
    return sums, states, np.array(left, dtype=np.int64)


def _add_compiled(
    sums: Array,
    states: Indices,
    laid: Laid,
    rows: LaidRows,
    pairs: Pairs,
    store: Array,
    mapper: Sharing,
) -> Indices:
    """Add pairs; the numbers of those that are not believed, which were left out."""
    own, k = laid.rows, len(pairs.orders)
    columns, sizes, ratios = _lists(pairs.orders), _lists(pairs.sizes), np.empty(k)
    G, C = (np.empty((0, 0)), np.zeros((0, rows.Y.shape[1]))) if laid.G is None else (laid.G, laid.C)
    given = G, C, own.A, own.Y, own.n, laid.scale, laid.far, laid.relative

    def factor(start: int, stop: int) -> None:
        _kernel.factor_members(start, stop, *given, *columns, store, ratios)

    mapper.quiet()(factor, k, uses_blas=False)
    trusted = (ratios >= SMALLEST_PIVOT).reshape(-1, 2).all(axis=1)
    use = np.flatnonzero(trusted)
    n_panels = rows.A.shape[1] // LANES
    count = min(MOST_PANELS, -(-n_panels // (2 * mapper.n_threads)))

    def add(start: int, stop: int) -> None:
        _kernel.sum_pairs(
            start * count, min(stop * count, n_panels), rows.A, rows.Y, rows.share, rows.root, rows.n, rows.own,
            *columns, *sizes, pairs.slots, use, store, sums[0], sums[1], sums[2], states,
        )  # fmt: skip

    mapper.quiet()(add, -(-n_panels // count), uses_blas=False)
    return np.flatnonzero(~trusted)


def _lists(parts: list[Indices]) -> tuple[Indices, Indices, Indices]:
    """Starts, stops and indices of lists, as the kernel takes them."""
    bounds = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return bounds[:-1], bounds[1:], np.concatenate(parts).astype(np.int64, copy=False)


def _add_by_hand(
    out: Sums, data: PathData, rows: LaidRows, pairs: Pairs, which: Indices, some: Indices | None, mapper: Sharing
) -> None:
    """Add pairs one by one, at some of the rows or at all."""

    def one(member: int) -> Array:
        order, sizes = pairs.orders[member], pairs.sizes[member]
        if rows.own:
            return prefix_residuals(data, order, sizes)
        (fitted,) = predictions(data, rows.A[:, : rows.n].T, [order], sizes, [None])
        return rows.Y[: rows.n] + data.mean_y - fitted

    def follow(start: int, stop: int) -> list[tuple[int, Array, Array]]:
        return [(int(pairs.slots[i]), one(2 * i), one(2 * i + 1)) for i in which[start:stop]]

    for found in mapper.quiet()(follow, len(which)):
        for slot, first, second in found:
            out.add(slot, first, second, slice(None) if some is None else some)
