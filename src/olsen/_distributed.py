r"""Fits from Dask arrays and data frames: only sums travel, nothing of the length of the data comes to the client.

======================================  ================================================  ====================
case                                    work on the cluster                               to the client
======================================  ================================================  ====================
a Gram matrix fits                      moments of every chunk, merged as a tree          8 p^2 bytes, once
it does not (large p)                   X'(X V) of every chunk, summed, once a step       8 p k bytes a step
members have fewer rows than columns    batches of members, on their gathered columns     their coefficients
======================================  ================================================  ====================

Chunks are merged in their order whatever worker had them, so a lost worker changes nothing: Dask makes its chunks
again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _blockwise, _members, subsets
from ._blockwise import Accumulator, Summary
from ._elsewhere import remember_design, set_attributes
from ._execution import cluster, memory
from ._execution.blocks import BLOCK_BYTES, BlockSource, Checked, name_bad_rows, split_rows
from ._inputs import uses_all_rows
from ._members import masked_cg
from ._members.batches import Batch, shared_rows_batch
from ._members.operators import Normal
from ._moments import Moments
from ._streaming import Triangle

__all__ = ["ClusterRows", "DaskSummary", "fit", "predict", "summarise"]

MEMBERS_AT_ONCE = 8  # members of one task, where members are tasks


def fit(estimator, X, y, sample_weight) -> None:
    """Set the fitted attributes of an ensemble from Dask collections."""
    _blockwise.refuse_leave_one_out(estimator)
    all_rows = uses_all_rows(estimator.max_samples)
    parts = cluster.row_parts(X, y, sample_weight, lengths=not all_rows)
    p = parts.n_columns
    groups = 1 if all_rows else _blockwise.GROUPS
    design = remember_design(estimator, max(parts.n_rows, 0), p)
    size = (
        subsets.resolve_size(estimator.max_features, p, "max_features") if np.ndim(estimator.max_features) == 0 else 0
    )
    if 0 <= parts.n_rows <= size:
        return _fit_wide(estimator, parts, design)
    if 8.0 * p * p * groups < 0.25 * memory.available_bytes():
        return _blockwise.fit_summary(estimator, summarise(estimator, parts, groups, design["seed"]), design)
    if groups > 1:
        raise ValueError(f"{groups} Gram matrices of {p} columns do not fit in memory; use max_samples=1.0.")
    return _fit_by_steps(estimator, parts, design)


def predict(estimator, X):
    """Predictions as lazy as X."""
    return cluster.lazy_predictions(X, estimator.coef_, estimator.intercept_, _predict_chunk)


def _predict_chunk(block, coef, intercept):
    return np.asarray(block) @ coef.T + intercept


# A Gram matrix that fits: moments as a tree


class DaskSummary(Summary):
    """Moments of row groups, made on the cluster; so are the triangular factors, if any member asks for them."""

    @cached_property
    def parts(self) -> list[Moments]:
        return vars(self)["found"]

    @cached_property
    def triangles(self) -> list[Triangle]:
        rows, centre, groups = vars(self)["rows"], self.fit_intercept, len(self.parts)
        return cluster.compute(
            cluster.tree(_tasks(_chunk_triangles, rows, groups, self.seed, centre), _merge_triangles)
        )[0]


def summarise(estimator, rows: cluster.RowParts, n_groups: int, seed: int) -> DaskSummary:
    """Moments of every group of rows by one tree reduction."""
    tasks = _tasks(_chunk_moments, rows, n_groups, seed, estimator.fit_intercept)
    moments, single, dtype = cluster.compute(cluster.tree(tasks, _merge_moments))[0]
    if any(m is None for m in moments):
        raise ValueError(f"the Dask array has too few rows for {n_groups} groups of them; use max_samples=1.0.")
    p, q = moments[0].C.shape
    accumulators = [Accumulator(p, q, estimator.fit_intercept) for _ in moments]
    source = BlockSource(lambda: iter(()), "Dask array", True, rows.n_rows, rows.names)
    n = sum(m.n_rows for m in moments)
    summary = DaskSummary(accumulators, n, single, dtype, seed, source, estimator.fit_intercept)
    vars(summary).update(found=moments, rows=rows)
    return summary


def _tasks(function, rows, *arguments):
    import dask

    work = dask.delayed(function, pure=False)
    places = zip(rows.X, rows.y, rows.weight, rows.first, range(len(rows.X)), strict=True)
    return [work(X, y, w, first, number, *arguments) for X, y, w, first, number in places]


def _slices(X, y, weight, first, number):
    """A chunk as blocks small enough to be copied in float64."""
    X = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    y, weight = np.asarray(y), None if weight is None else np.asarray(weight, dtype=np.float64)
    if len(y) != len(X):
        raise ValueError(f"chunk {number} has {len(X)} rows of X and {len(y)} of y.")
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    rows = max(1, BLOCK_BYTES // (8 * X.shape[1]))
    for start in range(0, max(1, len(X)), rows):
        here = slice(start, start + rows)
        w = None if weight is None else weight[here]
        yield Checked(X[here], y[here].reshape(len(y[here]), -1), w, number, first + start, y.ndim == 1, dtype)


def _chunk_moments(X, y, weight, first, number, n_groups, seed, centre):
    found: list[Accumulator] = []
    for block in _slices(X, y, weight, first, number):
        found = found or [Accumulator(block.X.shape[1], block.y.shape[1], centre) for _ in range(n_groups)]
        for g, part, target, w in split_rows(block, n_groups, seed):
            found[g].add(part, target, w)
            if not found[g].finite():
                name_bad_rows(block, "Dask array")
    return [a.moments() if a.n_rows else None for a in found], block.single, block.dtype


def _merge_moments(parts):
    moments, single, dtype = parts[0]
    for other, _, _ in parts[1:]:
        pairs = zip(moments, other, strict=True)
        moments = [b if a is None else a if b is None else a.merge(b) for a, b in pairs]
    return moments, single, dtype


def _chunk_triangles(X, y, weight, first, number, n_groups, seed, centre):
    out: list[Triangle] = []
    for block in _slices(X, y, weight, first, number):
        out = out or [Triangle.empty(block.X.shape[1], block.y.shape[1]) for _ in range(n_groups)]
        for g, part, target, w in split_rows(block, n_groups, seed):
            out[g] = out[g].add(_members.Problem(part, target, w, centre))
    return out


def _merge_triangles(parts):
    out = parts[0]
    for other in parts[1:]:
        out = [a.join(b) for a, b in zip(out, other, strict=True)]
    return out


# A Gram matrix that does not fit: one round over the chunks for every step


@dataclass(frozen=True)
class ClusterRows:
    """Rows on a cluster that answer one question: X'(D (X V)), about their mean."""

    parts: cluster.RowParts
    centre: NDArray
    shape: tuple[int, int]
    xp: Any = np

    @property
    def entries(self) -> float:
        """Numbers stored."""
        return float(self.shape[0]) * self.shape[1]

    def normal(self, V, D):
        """The product, and the column sums of the inner bracket."""
        import dask

        V, centre = dask.delayed(V, pure=False), dask.delayed(self.centre, pure=False)  # sent once, not with each task
        work = dask.delayed(_chunk_product, pure=False)
        places = zip(self.parts.X, self.parts.weight, strict=True)
        product, sums = cluster.compute(cluster.tree([work(X, w, V, centre) for X, w in places], _add_pairs))[0]
        return product - self.centre[:, None] * sums[None, :], sums


def _chunk_product(X, weight, V, centre):
    T = X @ V - centre @ V
    if weight is not None:
        T *= np.asarray(weight)[:, None]
    return np.asarray(X.T @ T), T.sum(axis=0)


def _add_pairs(pairs):
    return tuple(sum(items[1:], start=items[0]) for items in zip(*pairs, strict=True))


def _chunk_sums(X, y, weight, first, number, centre):
    """Weight, means, X'y and squares of the columns, about the chunk's means."""
    total: list = []
    for block in _slices(X, y, weight, first, number):
        if not (np.isfinite(block.X).all() and np.isfinite(block.y).all()):
            name_bad_rows(block, "Dask array")
        w = np.ones(len(block.X)) if block.weight is None else block.weight
        share = w / (w.sum() or 1.0) if centre else 0 * w
        mean_x, mean_y = share @ block.X, share @ block.y
        x, residual = block.X - mean_x, block.y - mean_y
        total.append((w.sum(), mean_x, mean_y, x.T @ (w[:, None] * residual), w @ (x * x)))
    return _merge_sums(total)


def _merge_sums(parts):
    """Chan's formula for the diagonal of a Gram matrix."""
    w, mean_x, mean_y, C, squares = parts[0]
    for w2, mean_x2, mean_y2, C2, squares2 in parts[1:]:
        dx, dy, share = mean_x2 - mean_x, mean_y2 - mean_y, w2 / (w + w2) if w2 else 0.0
        C, squares = C + C2 + w * share * np.outer(dx, dy), squares + squares2 + w * share * dx**2
        w, mean_x, mean_y = w + w2, mean_x + share * dx, mean_y + share * dy
    return w, mean_x, mean_y, C, squares


def _fit_by_steps(estimator, rows, design):
    sums = cluster.tree(_tasks(_chunk_sums, rows, estimator.fit_intercept), _merge_sums)
    (_, mean_x, mean_y, C, squares), (y_chunk,) = cluster.compute(sums)[0], cluster.compute(rows.y[0][:1])
    features, _ = subsets.draw_members(start=0, stop=estimator.n_estimators, **design)
    shape = (rows.n_rows, rows.n_columns)
    table = ClusterRows(rows, mean_x if estimator.fit_intercept else 0 * mean_x, shape)
    coef = np.zeros_like(C)
    for part in _solve_by_steps(estimator, table, features, C, squares, mean_y):
        coef += part.coef.sum(axis=2) / len(features)
    _finish(estimator, rows, design, features, coef, mean_y - mean_x @ coef, mean_y, "masked_cg", y_chunk.ndim == 1)


def _solve_by_steps(estimator, table, features, C, squares, mean_y):
    """Members in batches by masked conjugate gradients; there is no direct solver to hand over to."""
    k, (p, q) = len(features), C.shape
    problem = _members.Problem(None, np.empty((0, q)), None, False, None, estimator.tol)
    size = max(1, int(masked_cg.BATCH_BYTES // (8 * 10 * p * (q + 1))))

    def make(mask, probing) -> Batch:
        batch = shared_rows_batch(problem, mask, C, squares, mean_y, probing)
        return replace(batch, operator=Normal(table, batch.operator, None))

    for start in range(0, k, size):
        members = np.arange(start, min(start + size, k))
        yield masked_cg.solve_alone(make, features, members, problem)


# Fewer rows than columns: members are tasks


def _fit_wide(estimator, rows, design):
    import dask

    features, samples = subsets.draw_members(start=0, stop=estimator.n_estimators, **design)
    pick, work = dask.delayed(_pick_columns, pure=False), dask.delayed(_solve_members, pure=False)
    settings = (estimator.fit_intercept, estimator.rcond, estimator.tol)
    tasks = []
    for start in range(0, len(features), MEMBERS_AT_ONCE):
        batch = features.slice(start, min(start + MEMBERS_AT_ONCE, len(features)))
        own = None if samples is None else samples.slice(start, start + len(batch))
        columns, inverse = np.unique(batch.indices, return_inverse=True)
        local = subsets.Subsets(len(columns), batch.indptr, inverse)
        tasks.append(work([pick(X, columns) for X in rows.X], rows.y, rows.weight, columns, local, own, settings))
    p = rows.n_columns
    found = cluster.compute(*tasks)
    q, single, k = found[0][1].shape[1], found[0][-1], len(features)
    coef, intercept, mean_y, refitted = np.zeros((p, q)), np.zeros(q), np.zeros(q), 0
    for columns, values, constant, mean, again, _ in found:
        coef[columns] += values
        intercept, mean_y, refitted = intercept + constant, mean_y + mean, refitted + again
    _finish(estimator, rows, design, features, coef / k, intercept / k, mean_y / k, "interpolator", single, refitted)


def _pick_columns(X, columns):
    return X[:, columns]


def _solve_members(X, y, weight, columns, features, samples, settings):
    """Sums over a batch of members, solved on the columns they hold."""
    X, y = np.concatenate(X), np.concatenate(y)
    weight = None if weight[0] is None else np.concatenate(weight)
    problem = _members.Problem(X, y.reshape(len(y), -1).astype(float), weight, *settings)
    solution = _members.solve(problem, features, samples)
    values = np.stack([np.bincount(features.indices, v, len(columns)) for v in solution.values.T], axis=1)
    rows = [np.arange(len(X))] * len(features) if samples is None else list(samples)
    means = sum(np.average(problem.Y[r], axis=0, weights=None if weight is None else weight[r]) for r in rows)
    return columns, values, solution.intercepts.sum(axis=0), means, int(solution.refitted.sum()), y.ndim == 1


def _finish(estimator, rows, design, features, coef, intercept, mean_y, solver, single, refitted=0):
    _blockwise.set_names(estimator, rows.names, rows.n_columns)
    estimator._design, estimator._kept_rows = design, None
    set_attributes(estimator, features, solver, refitted)
    _blockwise.set_coefficients(estimator, coef, intercept, mean_y, single, np.float64)
