"""Members with data of their own: submatrices gathered from X, squared and solved in one workspace."""

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
    workspace,
)
from .first_use import said_if_compiled
from .refined import needs_data
from .registers import LANES, LIST, TILE, add_gram_diagonal, add_gram_tile, gather_tile, shift_and_scale

__all__ = ["DEPTH", "build_gram", "solve_gathered"]

# Rows of X gathered at a time: a panel of that depth (16 kB) stays in the L1 cache as the broadcast operand.
DEPTH = 256
HUGE = 1e30  # pivot of a column that is to have no part; its root and quotients stay normal numbers in float32 too


@njit(**JIT)
def _gather_rows(source, strides, Y, cols, m, rows, n_rows, work, data):
    """Gather ``n_rows`` rows (padded to whole tiles) of the variables and of Y into the panels of Z at ``data``."""
    q = Y.shape[1]
    n_blocks = layout(m, q)[0]
    for r in range(n_blocks):
        for i in range(0, n_rows, LANES):
            tile = data + LANES * (DEPTH * r + i)
            gather_tile(source, rows, i, strides[0], cols, LANES * r, strides[1], work, tile)
    for t in range(q):
        first = data + LANES * DEPTH * ((m + t) // LANES) + (m + t) % LANES
        for i in range(n_rows):
            work[first + LANES * i] = Y[rows[i], t]


@njit(**JIT)
def _weighted_mean(work, panel, depth, roots, origin):
    """Weighted mean of the rows of a panel: a plain one would follow rows far out that count for nothing."""
    weight = 0.0
    for i in range(depth):
        w = work[roots + i] ** 2
        weight += w
        for lane in range(LANES):
            work[origin + lane] += w * work[panel + LANES * i + lane]
    for lane in range(LANES):
        work[origin + lane] /= weight


@njit(**JIT)
def _accumulate_gram(work, m, q, depth, data, shift, roots, total, centre, first):
    """Shift and scale the gathered rows and add their Gram matrix to the panels of the member."""
    n_blocks, n_panels, _, _, panels, _ = layout(m, q)
    for r in range(n_panels):
        panel, origin = data + LANES * DEPTH * r, shift + LANES * r
        if first and centre:
            _weighted_mean(work, panel, depth, roots, origin)
        shift_and_scale(work, (panel, depth, origin, roots, total + LANES * r))
    for s in range(n_blocks):
        here = data + LANES * DEPTH * s
        add_gram_diagonal(work, (depth, here, panels + panel_size(s, n_blocks) + TILE * s))
        for r in range(s + 1, n_panels):
            tile = panels + panel_size(r, n_blocks) + TILE * s
            add_gram_tile(work, (depth, data + LANES * DEPTH * r, here, tile))


@njit(**JIT)
def _remove_means(work, m, q, shift, total, weight):
    """Turn moments about ``shift`` into moments about the means, and ``shift`` into the means."""
    n_blocks, n_panels, _, _, panels, _ = layout(m, q)
    delta = work[total : total + LANES * n_panels] / weight
    work[shift : shift + LANES * n_panels] += delta
    for s in range(n_blocks):
        for r in range(s, n_panels):
            tile = panels + panel_size(r, n_blocks) + TILE * s
            for c in range(LANES):
                factor = work[total + LANES * s + c]
                for lane in range(LANES):
                    work[tile + LANES * c + lane] -= factor * delta[LANES * r + lane]


@njit(**JIT)
def build_gram(source, strides, Y, cols, m, rows, row_start, row_stop, weights, centre, work, own_rows, eps, silent):
    """Fill the member's panels with the moments of its data; return the offset of the means.

    The rows come in slabs.  The mean of the first slab serves as a provisional origin, which removes the bulk of any
    offset before squaring; the remainder is corrected exactly at the end, so the data are gathered only once.
    """
    q = Y.shape[1]
    _, n_panels, _, _, panels, end = layout(m, q)
    shift = end
    total = shift + LANES * n_panels
    roots = total + LANES * n_panels
    data = roots + DEPTH
    work[panels:roots] = 0.0
    weight = 0.0
    for start in range(row_start, row_stop, DEPTH):
        stop = min(start + DEPTH, row_stop)
        depth = (stop - start + LANES - 1) // LANES * LANES
        copy_padded(rows, start, stop, own_rows)
        _gather_rows(source, strides, Y, cols, m, own_rows, depth, work, data)
        work[roots : roots + depth] = 0.0
        for i in range(stop - start):
            w = weights[start + i] if weights.size else 1.0
            weight += w
            work[roots + i] = np.sqrt(w)
        _accumulate_gram(work, m, q, depth, data, shift, roots, total, centre, start == row_start)
    if centre:
        _remove_means(work, m, q, shift, total, weight)
        _silence_constants(work, m, q, shift, weight, eps, silent)
    return shift


@njit(**JIT)
def _silence_constants(work, m, q, shift, weight, eps, silent):
    """Find columns of which centring leaves nothing but rounding; a huge pivot keeps them out of the factor.

    The threshold is that of ``_trust.constant_columns``.
    """
    n_blocks, _, _, _, panels, _ = layout(m, q)
    for j in range(m):
        pivot = panels + panel_size(j // LANES, n_blocks) + LANES * j + j % LANES
        silent[j] = work[pivot] <= weight * (16 * eps * abs(work[shift + j])) ** 2
        if silent[j]:
            work[pivot] = HUGE


@njit(**JIT)
def _lengths(work, m, q, lengths):
    """Lengths of the member's columns, from its Gram matrix before elimination."""
    n_blocks, _, _, _, panels, _ = layout(m, q)
    for j in range(m):
        lengths[j] = np.sqrt(work[panels + panel_size(j // LANES, n_blocks) + LANES * j + j % LANES])


@njit(**JIT)
def _own_data(source, strides, Y, cols, m, n_targets, rows, row_start, row_stop, weights, means):
    """Columns and targets of one member about its means, times the roots of the weights, (m, rows) and (rows, q)."""
    count = row_stop - row_start
    A, own_Y, weight = np.empty((m, count)), np.empty((count, n_targets)), 0.0
    for i in range(count):
        w = weights[row_start + i] if weights.size else 1.0
        weight += w
        root, row = np.sqrt(w), rows[row_start + i]
        for j in range(m):
            A[j, i] = root * (source[row * strides[0] + cols[j] * strides[1]] - means[j])
        for t in range(n_targets):
            own_Y[i, t] = root * (Y[row, t] - means[m + t])
    return A, own_Y, weight


@njit(**JIT)
def _mend_own(
    source, strides, Y, cols, m, rows, row_start, row_stop, weights, means, work, q, skipped, count, spare, lengths,
    eps, values, ratio, probed, silent,
):  # fmt: skip
    """Finish a member on its own data; whether it is to be believed."""
    A, own_Y, weight = _own_data(
        source, strides, Y, cols, m, values.shape[1], rows, row_start, row_stop, weights, means
    )  # fmt: skip
    for j in range(m):
        if silent[j]:
            A[j] = 0.0
            lengths[j] = 0.0
    far, share = 4 * eps * np.abs(means[:m]) * np.sqrt(weight), eps * max(A.shape[1], m, 10)
    return mend(work, m, q, A, np.arange(m), own_Y, lengths, share, far, values, ratio, probed, skipped, count, spare)


@njit(**JIT)
def _solve_gathered_range(
    source,
    strides,
    Y,
    col_indptr,
    cols,
    row_starts,
    row_stops,
    rows,
    weights,
    scale,
    centre,
    begin,
    end,
    values,
    intercepts,
    ratios,
    probed,
    work,
    own,
    own_rows,
    cursor,
    eps,
    silent,
    on_data,
    spare,
):
    q = Y.shape[1]
    skipped, lengths = np.zeros(own.size, np.int64), np.zeros(own.size)
    for i in range(begin, end):
        start, stop = col_indptr[i], col_indptr[i + 1]
        m = stop - start
        if row_starts[i] == row_stops[i]:
            ratios[i], probed[i] = 0.0, np.inf
            values[start:stop] = np.nan
            intercepts[i] = np.nan
            continue
        copy_padded(cols, start, stop, own)
        shift = build_gram(
            source, strides, Y, own, m, rows, row_starts[i], row_stops[i], weights, centre, work, own_rows, eps, silent
        )
        _lengths(work, m, q, lengths)
        for s in range((m + LANES - 1) // LANES):
            eliminate_block(work, s, m, q, source, cursor)
        ratios[i], probed[i] = 1.0, 0.0
        if m:
            ratios[i] = finish(work, m, q)
            read_targets(work, m, q, ratios[i], values[start:stop])
            for j in range(m):
                if silent[j]:
                    values[start + j] = 0.0
            probed[i] = largest_probe(work, m, q, values.shape[1], scale, own, ratios[i])
            count = count_skipped(work, m, q, skipped) if ratios[i] > 0.0 else 0
            size = probed[i] ** 2 * (row_stops[i] - row_starts[i])
            if count or needs_data(ratios[i], size):
                believed = on_data and _mend_own(
                    source, strides, Y, own, m, rows, row_starts[i], row_stops[i], weights,
                    work[shift : shift + m + q].copy(), work, q, skipped, count, spare, lengths, eps,
                    values[start:stop], ratios[i], size, silent,
                )  # fmt: skip
                ratios[i], probed[i] = (1.0, 0.0) if believed else (0.0, np.inf)
        for t in range(values.shape[1]):
            mean = work[shift + m + t]
            for j in range(m):
                mean -= work[shift + j] * values[start + j, t]
            intercepts[i, t] = mean


def solve_gathered(
    X, Y, col_indptr, cols, row_starts, row_stops, rows, weights, scale, centre, on_data, begin, end, out
):
    """Solve weighted least squares on submatrices ``X[T, S]`` of members `begin` to `end`, in the caller's thread.

    Parameters
    ----------
    X : ndarray of shape (n, p), float64 or float32, C or Fortran order
        The latter is faster where p is large and the rows of a member are many of n.
    Y : ndarray of shape (n, q + probes), of the same type, C-contiguous
        Targets; of the last ones, the probes, only the size of their coefficients is wanted.
    col_indptr, cols : ndarray of int64
        Columns of member i are ``cols[col_indptr[i]:col_indptr[i + 1]]``; bounds are not checked here.
    row_starts, row_stops, rows : ndarray of int64
        Its rows are ``rows[row_starts[i]:row_stops[i]]``.
    weights : ndarray of the same type
        Positive weights aligned with `rows`; empty for none.
    scale : ndarray of shape (p,), float64
        Factors on the entries of the probes' coefficients.
    centre : bool
        Whether to centre by the weighted means of the member's rows.
    on_data : bool
        Whether members with (nearly) dependent columns are finished on their data; otherwise they break down.
    begin, end : int
        Range of members.
    out : tuple of ndarrays
        Receives coefficients (col_indptr[-1], q) in the order of `cols`, NaN after a breakdown; intercepts (k, q);
        the smallest ``L_jj^2 / G_jj`` of each member (k,), float64; the largest ``|b_j| scale_j`` of its probes (k,),
        infinity after a breakdown.
    """
    values, intercepts, ratios, probed = out
    largest = int(np.diff(col_indptr[begin : end + 1]).max(initial=0))
    _, n_panels, _, _, _, size = layout(largest, Y.shape[1])
    spare = size + LANES * n_panels * (DEPTH + 2) + DEPTH
    work = workspace(spare + AT_ONCE * LANES * n_panels, X.dtype)
    own, own_rows = np.zeros(largest + LANES, np.int64), np.zeros(DEPTH, np.int64)
    flat, strides = X.ravel(order="K"), np.array(X.strides) // X.itemsize
    with said_if_compiled(_solve_gathered_range):
        _solve_gathered_range(
            flat, strides, Y, col_indptr, cols, row_starts, row_stops, rows, weights, scale,
            centre, begin, end, values, intercepts, ratios, probed, work, own, own_rows, np.zeros(LIST, np.int64),
            np.finfo(np.float64).eps, np.zeros(largest + LANES, np.bool_), on_data, spare,
        )  # fmt: skip
    if not centre:
        intercepts[begin:end] = 0.0
