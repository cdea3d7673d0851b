r"""Paths of sizes: factors of members, and sums over pairs of members of what they miss rows by that are left out.

A member's factor stays where it was made. Rows of data, eight at a time, are appended to it like right-hand sides, and
the forward substitution of the factorisation turns them into :math:`Z_l = L^{-1} x_l`; running sums over the columns
give fitted values and leverages of every size. Everything is in terms of root-weighted rows. Rows are independent of
each other, so threads share them, and sums over members are always taken in the same order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..._trust import EXACT_FIT, costs_a_rank
from .dependent import AT_ONCE, confirmed, count_skipped, relations
from .factor import (
    JIT,
    copy_padded,
    eliminate_block,
    layout,
    panel_size,
    pivot_ratio,
    rhs_row,
    solve_lower,
    solve_upper,
    workspace,
)
from .first_use import said_if_compiled
from .gathered import DEPTH, build_gram
from .principal import gather_block
from .registers import LANES, LIST, RECORD, TILE, solve_tile

__all__ = ["factor_members", "room_of", "room_of_rows", "sum_pairs"]

SMALLEST_BLOCK, BLOCK_BYTES = 2, 1 << 19  # panels of rows worked on at a time, and what they may take of the L2 cache
# What became of a row that a size fits exactly
SUMMED, REFIT = 0, 1

_costs_a_rank = njit(**JIT)(costs_a_rank)


@njit(**JIT)
def _factor_range(
    G, C, A, Y, rows, scale, far, relative, indptr, indices, begin, end, store, offsets, ratios, work, spare
):
    """Factor the members ``begin`` to ``end`` and store the factors; ``G`` is flat, empty: from the columns ``A``."""
    q = C.shape[1]
    own, cursor = np.zeros(spare[1] + LANES, np.int64), np.zeros(LIST, np.int64)
    skipped, lengths, residual = np.zeros(own.size, np.int64), np.zeros(own.size), np.zeros(A.shape[1])
    own_rows, silent = np.zeros(DEPTH, np.int64), np.zeros(own.size, np.bool_)
    flat, strides, no_weights = A.reshape(-1), np.array([1, A.shape[1]]), np.zeros(0)
    for i in range(begin, end):
        start, stop = indptr[i], indptr[i + 1]
        m = stop - start
        copy_padded(indices, start, stop, own)
        if G.size == 0:
            build_gram(
                flat, strides, Y, own, m, rows, 0, rows.size, no_weights, False, work, own_rows, 0.0, silent
            )  # fmt: skip
        for s in range((m + LANES - 1) // LANES):
            if G.size:
                gather_block(G, C, own, m, s, work)
            eliminate_block(work, s, m, q, G, cursor)
        ratios[i] = pivot_ratio(work, m, q)
        count = count_skipped(work, m, q, skipped) if ratios[i] > 0.0 else 0
        if count:
            for j in range(m):
                lengths[j] = scale[own[j]]
            W = relations(work, m, q, skipped, count, spare[0])
            if not confirmed(A, own, W, skipped, lengths, relative, far, residual):
                ratios[i] = 0.0
        size = layout(m, q)[-1]
        store[offsets[i] : offsets[i] + size] = work[:size]


@njit(**JIT)
def _solve_rows(member, m, q, A, cols, first, count, panels_at, store_panels):
    """Turn ``count`` panels of rows from row ``first`` on into Z; a panel takes ``store_panels`` numbers."""
    n_blocks, _, records, _, panels, _ = layout(m, q)
    for r in range(count):
        at = panels_at + store_panels * r
        for j in range(m):
            column = A[cols[j]]
            for lane in range(LANES):
                member[at + LANES * j + lane] = column[first + LANES * r + lane]
        member[at + LANES * m : at + TILE * n_blocks] = 0.0
    for s in range(n_blocks):
        diagonal, record = panels + panel_size(s, n_blocks), records + RECORD * s
        for r in range(count):
            solve_tile(member, (LANES * s, diagonal, record, panels_at + store_panels * r))


@njit(**JIT)
def _running_sums(member, m, q, at, sizes, target, left, own, z, e, lane_offset):
    """Residuals of eight rows for all sizes into ``e`` (sizes, q, rows); the first size, or -1, of exact fits.

    Rows that the member was given, ``own``, are left out.

    ``left`` (8,) starts as 1 - share; ``target`` (8, q) as the centred targets. Both are used up.
    """
    exact = np.full(LANES, -1)
    j = 0
    for s in range(sizes.size):
        while j < sizes[s]:
            if own:
                for lane in range(LANES):
                    value = member[at + LANES * j + lane]
                    left[lane] -= value * value
            for t in range(q):
                factor = z[t, j]
                for lane in range(LANES):
                    target[t, lane] -= factor * member[at + LANES * j + lane]
            j += 1
        for lane in range(LANES):
            if left[lane] <= EXACT_FIT and exact[lane] < 0:
                exact[lane] = s
        for t in range(q):
            for lane in range(LANES):
                e[s, t, lane_offset + lane] = target[t, lane] / left[lane]
    return exact


@njit(**JIT)
def _fill_exact(member, m, q, A, cols, n, at, lane, row, sizes, s, share, z, spare, e, column):
    """Residuals of a row that size ``s`` and those after it fit exactly; REFIT where deleting it costs no rank.

    With :math:`p = G^{-1} x_l` the data have :math:`X p` = the row of the hat matrix, one at l and zero elsewhere. More
    columns change nothing about that, so p serves all larger sizes, and the solutions without the row are those of
    Greville (see ``_members.path``): :math:`e_l = p'b / p'p`, with :math:`p'b = (L^{-1} p)' z`, a running sum.
    """
    n_blocks = layout(m, q)[0]
    first = sizes[s]
    member[spare : spare + LANES * n_blocks] = 0.0
    for j in range(first):
        member[spare + j] = member[at + LANES * j + lane]
    solve_upper(member, m, q, spare)
    p = member[spare : spare + m].copy()
    hat = np.zeros(n)
    for l in range(n):
        hat[l] = np.sqrt(share[l] * share[row])
    for j in range(first):
        if p[j] != 0.0:
            values = A[cols[j]]
            for l in range(n):
                hat[l] += p[j] * values[l]
    hat[row] = 0.0
    if not _costs_a_rank(np.sum(hat * hat), n):
        return REFIT
    u = np.zeros(m)
    solve_lower(member, m, q, p, u)
    square = np.sum(p * p)
    for t in range(q):
        total, j = 0.0, 0
        for i in range(s, sizes.size):
            while j < sizes[i]:
                total += u[j] * z[t, j]
                j += 1
            e[i, t, column] = total / square
    return SUMMED


@njit(**JIT)
def _member_rows(member, m, q, A, cols, n, first, count, region, panel, sizes, Y, share, root, own, e, states):
    """Residuals of ``count`` panels of rows by one member, in root-weighted terms divided by the roots."""
    _solve_rows(member, m, q, A, cols, first, count, region, panel)
    n_blocks, _, _, _, panels, _ = layout(m, q)
    z = np.empty((q, m))
    for t in range(q):
        at = rhs_row(m, t, n_blocks, panels)
        for j in range(m):
            z[t, j] = member[at + LANES * j]
    target, left = np.empty((q, LANES)), np.empty(LANES)
    for r in range(count):
        for lane in range(LANES):
            left[lane] = 1.0 - share[first + LANES * r + lane]
            for t in range(q):
                target[t, lane] = Y[first + LANES * r + lane, t]
        at = region + panel * r
        exact = _running_sums(member, m, q, at, sizes, target, left, own, z, e, LANES * r)
        for lane in range(LANES):
            row = first + LANES * r + lane
            if exact[lane] >= 0 and row < n:
                found = _fill_exact(
                    member, m, q, A, cols, n, at, lane, row, sizes, exact[lane], share, z,
                    region + panel * count, e, LANES * r + lane,
                )  # fmt: skip
                states[row] = max(states[row], found)
    for s in range(sizes.size):
        for t in range(q):
            for l in range(LANES * count):
                e[s, t, l] /= root[first + l]


@njit(**JIT)
def _sum_range(
    A, Y, share, root, n, own_rows, indptr, indices, size_ptr, sizes, slots, use, store, offsets, region, panel,
    count, begin, end, total, square, pair_square, states,
):  # fmt: skip
    """Add the pairs in ``use`` for the rows of the panels ``begin`` to ``end``, ``count`` panels at a time."""
    q = Y.shape[1]
    most = 0
    for i in range(size_ptr.size - 1):
        most = max(most, size_ptr[i + 1] - size_ptr[i])
    e = np.empty((2, most, q, LANES * count))
    for start in range(begin, end, count):
        now, first = min(count, end - start), LANES * start
        for pair in use:
            for side in range(2):
                i = 2 * pair + side
                cols, own = indices[indptr[i] : indptr[i + 1]], sizes[size_ptr[i] : size_ptr[i + 1]]
                _member_rows(
                    store[offsets[i] :], cols.size, q, A, cols, n, first, now, region - offsets[i], panel, own, Y,
                    share, root, own_rows, e[side], states,
                )  # fmt: skip
            for s in range(size_ptr[2 * pair + 1] - size_ptr[2 * pair]):
                place = slots[pair] + s
                for t in range(q):
                    for l in range(LANES * now):
                        a, b = e[0, s, t, l], e[1, s, t, l]
                        total[place, t, first + l] += a + b
                        square[place, t, first + l] += a * a + b * b
                        pair_square[place, t, first + l] += (0.5 * (a + b)) ** 2


def room_of(m, q):
    """Numbers that the factor of a member of ``m`` columns takes."""
    return int(layout(m, q)[-1])


def room_of_rows(m):
    """Numbers that the rows at work take beside members of up to ``m`` columns, and the panels of rows among them."""
    panel = (m + LANES - 1) // LANES * TILE
    count = max(SMALLEST_BLOCK, BLOCK_BYTES // (8 * max(panel, 1)))
    return panel * (count + 1), panel, count


def factor_members(G, C, A, Y, n, scale, far, relative, indptr, indices, begin, end, store, offsets, ratios):
    """Factor members `begin` to `end`, in the caller's thread.

    Parameters
    ----------
    G : ndarray of shape (p, p), or empty
        Gram matrix of the columns; where it is empty, every member makes its own.
    C : ndarray of shape (p, q)
        Products of the columns with the targets; without G only its number of columns counts.
    A, Y : ndarray of shape (p, n padded to 8), (n padded, q)
        Columns and targets about their means, times the roots of the weights; zero in the padding.
    n : int
        Rows.
    scale, far, relative : ndarray of shape (p,), the same, float
        Lengths of the columns, and what relations among them may miss by: see ``principal.solve_principal``.
    indptr, indices : ndarray of int64
        Columns of the members, in the order of their paths.
    begin, end : int
        Range of members.
    store, offsets : ndarray
        Receives the factors, each at its offset.
    ratios : ndarray of shape (k,)
        Receives the smallest pivot ratio of the columns that count; 0 where the member is not to be trusted.
    """
    largest, q = int(np.diff(indptr[begin : end + 1]).max(initial=0)), C.shape[1]
    _, n_panels, _, _, _, size = layout(largest, q)
    spare = size + LANES * n_panels * (DEPTH + 2) + DEPTH
    work = workspace(spare + AT_ONCE * LANES * n_panels, A.dtype)
    with said_if_compiled(_factor_range):
        _factor_range(
            G.reshape(-1), C, A, Y, np.arange(n), scale, far, relative, indptr, indices, begin, end, store, offsets,
            ratios, work, (spare, largest),
        )  # fmt: skip


def sum_pairs(A, Y, share, root, n, own_rows, members, slots, use, store, offsets, region, begin, end, out):
    """Add residuals of pairs of factored members at the panels of rows `begin` to `end`.

    Parameters
    ----------
    A, Y, n, store, offsets
        As in :func:`factor_members`, or of other rows.
    share, root : ndarray of shape (n padded,)
        Share of every row in the means (zero without intercept), root of its weight (one in the padding).
    own_rows : bool
        Whether these are the rows that the members were given; they are then left out.
    members : tuple of ndarrays
        indptr, indices of their columns; indptr and values of their sizes.
    slots : ndarray of shape (pairs,)
        Place of the first size of every pair in the sums.
    use : ndarray of int64
        Pairs that are summed.
    region : int
        Offset in `store` of the room for rows, of :func:`room_of_rows` numbers, that no other thread uses.
    begin, end : int
        Range of panels of eight rows.
    out : tuple of ndarrays
        Sums (sizes, q, n padded) of both residuals, of their squares and of the squares of their means; and the state
        of every row: `REFIT` where a size fits it exactly although others are like it, so that its sums say nothing.
    """
    largest = int(np.diff(members[0]).max(initial=0))
    _, panel, count = room_of_rows(largest)
    with said_if_compiled(_sum_range):
        _sum_range(
            A, Y, share, root, n, own_rows, *members, slots, use, store, offsets, region, panel, count, begin, end, *out
        )
