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
    solve_tile,
    solve_tile_prefetching,
    substitute_back,
)

__all__ = ["JIT", "copy_padded", "eliminate_block", "finish", "layout", "panel_size", "rhs_row", "workspace"]

JIT = {"nogil": True, "cache": True, "error_model": "numpy"}


@njit(inline="always")
def panel_size(r, n_blocks):
    """Elements before panel ``r``: a triangle of tiles, then full rows of tiles for the right-hand sides."""
    full = min(r, n_blocks)
    return TILE * (full * (full + 1) // 2 + (r - full) * n_blocks)


@njit(**JIT)
def layout(m, q):
    """Return the number of block columns and of panels, and the offsets of the member's parts in the workspace.

    The parts are: running minimum of the pivot ratios (at 0), records of the blocks, a vector, the panels; then the
    end of all that.
    """
    n_blocks = (m + LANES - 1) // LANES
    n_panels = (m + q + LANES - 1) // LANES
    records = LANES
    vector = records + RECORD * n_blocks
    panels = vector + LANES * n_blocks
    return n_blocks, n_panels, records, vector, panels, panels + panel_size(n_panels, n_blocks)


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
        if cursor[ROW] < cursor[LAST_ROW]:
            solve_tile_prefetching(work, place, source, cursor)
        else:
            solve_tile(work, place)


@njit(**JIT)
def finish(work, m, values):
    """Substitute backwards into ``values`` (m, q) and return the smallest pivot ratio."""
    n_blocks, _, records, x, panels, _ = layout(m, values.shape[1])
    ratio = work[:LANES].min()
    if not ratio > 0.0:
        values[:] = np.nan
        return 0.0
    _blank_padding(work, records + RECORD * (n_blocks - 1), m - LANES * (n_blocks - 1))
    for t in range(values.shape[1]):
        row = rhs_row(m, t, n_blocks, panels)
        for j in range(m):
            work[x + j] = work[row + LANES * j]
        work[x + m : x + LANES * n_blocks] = 0.0
        for s in range(n_blocks - 1, -1, -1):
            last = panels + panel_size(n_blocks - 1, n_blocks) + TILE * s
            place = (records + RECORD * s, last, TILE * (n_blocks - 1), n_blocks - 1 - s, x + LANES * s)
            substitute_back(work, place)
        values[:, t] = work[x : x + m]
    return ratio


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
