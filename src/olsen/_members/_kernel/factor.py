"""Factorisation and solution of one member in its workspace of panels."""

from __future__ import annotations

import numpy as np
from numba import njit

from .registers import (
    LANES,
    LAST_ROW,
    RECORD,
    ROW,
    TILE,
    factor_diagonal,
    solve_half_tile,
    solve_tile,
    solve_tile_prefetching,
    substitute_back,
    substitute_back_three,
)

__all__ = [
    "JIT",
    "copy_padded",
    "eliminate_block",
    "finish",
    "largest_probe",
    "layout",
    "panel_size",
    "pivot_ratio",
    "read_targets",
    "rhs_row",
    "solve_lower",
    "solve_upper",
    "workspace",
]


def _can_be_kept():
    """Whether there is a folder for compiled code: numba refuses to keep any where it can write to none."""
    try:
        njit(cache=True)(_can_be_kept)  # looks for the folder and compiles nothing
    except RuntimeError:
        return False
    return True


JIT = {"nogil": True, "cache": _can_be_kept(), "error_model": "numpy"}


@njit(inline="always")
def panel_size(r, n_blocks):
    """Elements before panel ``r``: a triangle of tiles, then full rows of tiles for the right-hand sides."""
    full = min(r, n_blocks)
    return TILE * (full * (full + 1) // 2 + (r - full) * n_blocks)


@njit(**JIT)
def layout(m, q):
    """Return the number of block columns and of panels, and the offsets of the member's parts in the workspace.

    The parts are: running minimum of the pivot ratios (at 0), records of the blocks, the solutions, the panels; then
    the end of all that.
    """
    n_blocks = (m + LANES - 1) // LANES
    n_panels = (m + q + LANES - 1) // LANES
    records = LANES
    solutions = records + RECORD * n_blocks
    panels = solutions + LANES * n_blocks * q
    return n_blocks, n_panels, records, solutions, panels, panels + panel_size(n_panels, n_blocks)


@njit(**JIT)
def eliminate_block(work, s, m, q, source, cursor):
    """Compute block column ``s`` of the factor, right-hand sides included."""
    n_blocks, n_panels, records, _, panels, _ = layout(m, q)
    done = LANES * s
    diagonal = panels + panel_size(s, n_blocks)
    record = records + RECORD * s
    if s == 0:
        work[:LANES] = 1.0
    factor_diagonal(work, (diagonal, done, m - done, record, 0))
    for r in range(s + 1, n_panels):
        place = (done, diagonal, record, panels + panel_size(r, n_blocks))
        if r >= n_blocks and m + q - LANES * r <= LANES // 2:
            solve_half_tile(work, place)
        elif cursor[ROW] < cursor[LAST_ROW]:
            solve_tile_prefetching(work, place, source, cursor)
        else:
            solve_tile(work, place)


@njit(**JIT)
def pivot_ratio(work, m, q):
    """Return the smallest pivot ratio of the factored member, 0 after a breakdown, and clear its padding."""
    n_blocks, _, records, _, _, _ = layout(m, q)
    ratio = work[:LANES].min()
    if not ratio > 0.0:
        return 0.0
    _blank_padding(work, records + RECORD * (n_blocks - 1), m - LANES * (n_blocks - 1))
    return ratio


@njit(**JIT)
def finish(work, m, q):
    """Substitute backwards and return the smallest pivot ratio, 0 after a breakdown.

    Solution ``t`` then starts at offset ``t * round_up(m)`` of the workspace's solutions.
    """
    n_blocks, _, records, solutions, panels, _ = layout(m, q)
    ratio = pivot_ratio(work, m, q)
    if not ratio > 0.0:
        return 0.0
    length = LANES * n_blocks
    for t in range(q):
        row, x = rhs_row(m, t, n_blocks, panels), solutions + length * t
        for j in range(m):
            work[x + j] = work[row + LANES * j]
        work[x + m : x + length] = 0.0
    for s in range(n_blocks - 1, -1, -1):
        record, last = records + RECORD * s, panels + panel_size(n_blocks - 1, n_blocks) + TILE * s
        up, below, x = TILE * (n_blocks - 1), n_blocks - 1 - s, solutions + LANES * s
        for t in range(0, q - 2, 3):
            substitute_back_three(work, (record, last, up, below, x + length * t, length))
        for t in range(q - q % 3, q):
            substitute_back(work, (record, last, up, below, x + length * t, length))
    return ratio


@njit(**JIT)
def solve_upper(work, m, q, x):
    """Solve L' in place, at offset ``x`` of the workspace; zeros at the columns that were skipped."""
    n_blocks, _, records, _, panels, _ = layout(m, q)
    last = n_blocks - 1
    for s in range(last, -1, -1):
        tile = panels + panel_size(last, n_blocks) + TILE * s
        substitute_back(work, (records + RECORD * s, tile, TILE * last, last - s, x + LANES * s, 0))


@njit(**JIT)
def solve_lower(work, m, q, p, u):
    """Solve L u = p, with zeros at the columns that were skipped."""
    n_blocks, _, records, _, panels, _ = layout(m, q)
    right = np.empty(LANES)
    for r in range(n_blocks):
        panel = panels + panel_size(r, n_blocks)
        width = min(LANES, m - LANES * r)
        for lane in range(LANES):
            right[lane] = p[LANES * r + lane] if lane < width else 0.0
        for k in range(LANES * r):
            for lane in range(LANES):
                right[lane] -= work[panel + LANES * k + lane] * u[k]
        for c in range(width):
            k = LANES * r + c
            u[k] = right[c] * work[records + RECORD * r + TILE + c]
            for lane in range(c + 1, width):
                right[lane] -= work[panel + LANES * k + lane] * u[k]


@njit(**JIT)
def read_targets(work, m, q, ratio, values):
    """Copy the first solutions into ``values`` (m, targets); NaN after a breakdown."""
    n_blocks, _, _, solutions, _, _ = layout(m, q)
    for t in range(values.shape[1]):
        x = solutions + LANES * n_blocks * t
        for j in range(m):
            values[j, t] = work[x + j] if ratio > 0.0 else np.nan


@njit(**JIT)
def largest_probe(work, m, q, first, scale, own, ratio):
    """Return the largest ``|x_j| scale[own_j]`` among the solutions from ``first`` on; infinity after a breakdown."""
    n_blocks, _, _, solutions, _, _ = layout(m, q)
    if not ratio > 0.0:
        return np.inf
    largest = 0.0
    for t in range(first, q):
        x = solutions + LANES * n_blocks * t
        for j in range(m):
            size = abs(work[x + j]) * scale[own[j]]
            if not size <= largest:  # also what is not a number
                largest = size if size == size else np.inf
    return largest


@njit(inline="always")
def rhs_row(m, t, n_blocks, panels):
    """Offset of right-hand side ``t``, whose entries are ``LANES`` apart."""
    return panels + panel_size((m + t) // LANES, n_blocks) + (m + t) % LANES


@njit(inline="always")
def _blank_padding(work, record, width):
    """Clear the columns after the last variable, whose "pivots" mean nothing, so that they solve to zero."""
    work[record + LANES * width : record + TILE] = 0.0
    work[record + TILE + width : record + RECORD] = 0.0


@njit(inline="always")
def copy_padded(indices, start, stop, out):
    """Copy an index list, padded to whole panels by its own last index, which brings in no foreign NaN."""
    size = stop - start
    for j in range(size):
        out[j] = indices[start + j]
    for j in range(size, (size + LANES - 1) // LANES * LANES):
        out[j] = indices[stop - 1]


def workspace(size, dtype):
    """Return zeroed memory that begins on a cache line, as the aligned vector loads require."""
    buffer = np.zeros(size + 64 // dtype.itemsize, dtype)
    return buffer[(-buffer.ctypes.data % 64) // dtype.itemsize :]
