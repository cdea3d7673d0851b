"""Members of one Gram matrix."""

from __future__ import annotations

import numpy as np
from numba import njit

from .dependent import AT_ONCE, count_skipped, mend
from .factor import (
    JIT,
    copy_padded,
    eliminate_block,
    finish,
    largest_probe,
    layout,
    panel_size,
    read_targets,
    rhs_row,
    workspace,
)
from .first_use import said_if_compiled
from .refined import needs_data
from .registers import COLUMN, LANES, LAST_ROW, LIST, ROW, SIZE, STRIDE, TILE, gather_tile

__all__ = ["gather_block", "solve_principal"]

# Prefetching hides DRAM, but only costs where G sits in the caches anyway.
PREFETCH_BYTES = 2**24
# The whole next member is fetched ahead while its cache lines fit half of an L2 cache, otherwise the next block.
PREFETCH_SIZE = 128


@njit(**JIT)
def gather_block(G, C, own, m, s, work):
    """Fill block column ``s`` from G, and from C in the rows after the last variable."""
    p, q = C.shape
    n_blocks, _, _, _, panels, _ = layout(m, q)
    for r in range(s, n_blocks):
        # The mirrored entries G[S_s, S_r]: a panel's column then comes from a single row of G.
        tile = panels + panel_size(r, n_blocks) + TILE * s
        gather_tile(G, own, LANES * s, p, own, LANES * r, 1, work, tile)
    for t in range(q):
        row = rhs_row(m, t, n_blocks, panels)
        for j in range(LANES * s, LANES * (s + 1)):
            work[row + LANES * j] = C[own[j], t]


@njit(**JIT)
def _aim(cursor, first_row, last_row, size):
    cursor[ROW], cursor[COLUMN], cursor[LAST_ROW], cursor[SIZE] = first_row, first_row, last_row, size


@njit(**JIT)
def _solve_principal_range(
    G, C, scale, A, Y, far, relative, indptr, indices, begin, end, values, ratios, probed, work, own, cursor, spare
):
    """Solve the members ``begin`` to ``end``; ``G`` is flat, a ``cursor`` without a stride stays put."""
    q = C.shape[1]
    skipped, lengths = np.zeros(own.size, np.int64), np.zeros(own.size)
    for i in range(begin, end):
        start, stop = indptr[i], indptr[i + 1]
        m = stop - start
        ratios[i], probed[i] = 1.0, 0.0
        if m == 0:
            continue
        copy_padded(indices, start, stop, own)
        prefetch = cursor[STRIDE] > 0
        whole = m <= PREFETCH_SIZE
        if prefetch:
            ahead = min(i + 1, end - 1) if whole else i
            copy_padded(indices, indptr[ahead], indptr[ahead + 1], cursor[LIST:])
            size = indptr[ahead + 1] - indptr[ahead]
            _aim(cursor, 0, size if whole else 0, size)
        for s in range((m + LANES - 1) // LANES):
            gather_block(G, C, own, m, s, work)
            if prefetch and not whole:
                _aim(cursor, min(LANES * (s + 1), m), min(LANES * (s + 2), m), m)
            eliminate_block(work, s, m, q, G, cursor)
        ratios[i] = finish(work, m, q)
        read_targets(work, m, q, ratios[i], values[start:stop])
        probed[i] = largest_probe(work, m, q, values.shape[1], scale, own, ratios[i])
        count = count_skipped(work, m, q, skipped) if ratios[i] > 0.0 else 0
        if count or needs_data(ratios[i], probed[i]):
            if not A.shape[1]:
                ratios[i] = -1.0
                continue
            for j in range(m):
                lengths[j] = scale[own[j]]
            believed = mend(
                work, m, q, A, own, Y, lengths, relative, far, values[start:stop], ratios[i], probed[i], skipped, count,
                spare,
            )  # fmt: skip
            ratios[i], probed[i] = (1.0, 0.0) if believed else (0.0, np.inf)


def solve_principal(G, C, scale, data, indptr, indices, begin, end, out):
    """Solve ``G[S, S] b = C[S]`` for members `begin` to `end` of one Gram matrix, in the caller's thread.

    Parameters
    ----------
    G : ndarray of shape (p, p), float64 or float32, C-contiguous
        Symmetric matrix, both triangles filled. The arithmetic is done in its precision.
    C : ndarray of shape (p, q + probes), of the same type, C-contiguous
        Right-hand sides; of the last ones, the probes, only the size of their solutions is wanted.
    scale : ndarray of shape (p,), float64
        Factors on the entries of the probes' solutions: the lengths of the columns.
    data : tuple
        Columns about their means, times the roots of the weights, (p, n), and targets likewise, (n, q); what taking the
        means out rounds in each column, (p,); the share of a relation's length below which it is rounding. Without
        columns, (p, 0), members with dependent or nearly dependent ones are not solved.
    indptr, indices : ndarray of int64
        Member i owns ``indices[indptr[i]:indptr[i + 1]]``; bounds are not checked here. Sorted subsets are gathered
        faster.
    begin, end : int
        Range of members; the results of a member do not depend on it.
    out : tuple of ndarrays
        Receives the solutions (indptr[-1], q) of the same type, in the order of ``indices``, NaN for a member whose
        factorisation broke down; the smallest ``L_jj^2 / G_jj`` of each member (k,), 0 for a breakdown, 1 for an empty
        subset, -1 for a member that would need the columns;
        the largest ``|x_j| scale_j`` of its probes (k,), infinity for a breakdown, 0 without probes.
    """
    values, ratios, probed = out
    largest = int(np.diff(indptr[begin : end + 1]).max(initial=0))
    A, Y, far, relative = data
    size, length = layout(largest, C.shape[1])[-1], (largest + LANES - 1) // LANES * LANES
    work = workspace(size + AT_ONCE * length, G.dtype)
    own = np.zeros(largest + LANES, np.int64)
    cursor = np.zeros(LIST + largest + 2 * LANES, np.int64)
    cursor[STRIDE] = G.shape[0] if G.nbytes > PREFETCH_BYTES else 0
    with said_if_compiled(_solve_principal_range):
        _solve_principal_range(
            G.reshape(-1), C, scale, A, Y, far, relative, indptr, indices, begin, end, values, ratios, probed, work,
            own, cursor, size,
        )  # fmt: skip
