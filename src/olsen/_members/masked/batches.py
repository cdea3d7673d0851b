"""A batch of members as columns of one iteration: operator, right-hand sides, probes, and the way back to coefficients.

Columns stand target by target, all members of the batch in each, then the probes: one for every member, or one of the
whole matrix, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._execution.arrays import Space
from ..problem import Problem
from .iteration import ALL
from .operators import Dual, Gram, Normal, Rows, UnitGram, column_squares

__all__ = ["OWN", "WHOLE", "Batch", "dual_batch", "gram_batch", "normal_batch", "shared_rows_batch"]

OWN, WHOLE = "own", "whole"  # what is probed: every member's matrix, or the one that holds them all


@dataclass(frozen=True)
class Batch:
    """What :func:`iteration.iterate` needs, and how its answer becomes coefficients."""

    operator: Any
    B: Any
    member: NDArray[np.int64]
    probe: NDArray[np.bool_]
    coefficients: Callable[[Any], Any]  # solutions of the targets, (rows, k q) -> (p, k q)
    mean_x: Any  # (p, 1) or (p, k)
    mean_y: Any  # (q, 1) or (q, k)

    def recover(self, X: Any, xp: Any) -> tuple[Any, Any]:
        """Coefficients (p, q, k) and intercepts (q, k) from the solutions of all columns."""
        q = self.mean_y.shape[0]
        k = int(np.count_nonzero(~self.probe)) // q
        coef = self.coefficients(X[:, : k * q])
        coef = xp.reshape(coef, (coef.shape[0], q, k))
        return coef, self.mean_y - xp.sum(self.mean_x[:, None, :] * coef, axis=0)


def gram_batch(problem: Problem, mask: Any, probing: str | None) -> Batch:
    """Members given by the columns of `mask`, (p, k), on the Gram matrix of all rows."""
    moments = problem.moments
    squares = problem.space.xp.linalg.diagonal(moments.G)
    batch = shared_rows_batch(problem, mask, moments.C, squares, moments.mean_y, probing)
    batch = replace(batch, mean_x=moments.mean_x[:, None])
    if problem.space.on_host:
        return replace(batch, operator=Gram(moments.G, batch.operator))
    scale = _inverse_root(squares, problem.space.xp)[:, None]
    unit = UnitGram(scale * moments.G * scale.T, batch.operator > 0, problem.space)
    return replace(batch, operator=unit, coefficients=lambda X: scale * X)


def shared_rows_batch(problem: Problem, mask: Any, C: Any, squares: Any, mean_y: Any, probing: str | None) -> Batch:
    """Members of all rows, from X'y and the squares of the columns; the operator is W alone, and means are zero."""
    xp, q = problem.space.xp, C.shape[1]
    p, k = mask.shape
    scale = _inverse_root(squares, xp)[:, None]
    W = _masked(mask, scale, problem.space)
    targets = [W * C[:, t][:, None] for t in range(q)]
    blocks = [W] * q
    noise = problem.space.put(_noise(p))[:, None]
    if probing == WHOLE:
        second = problem.space.put(_noise(2 * p)[p:])[:, None]
        blocks, targets = [*blocks, scale], [*targets, xp.where(scale > 0, second, xp.zeros_like(noise))]
    if probing == OWN:
        blocks, targets = [*blocks, W], [*targets, xp.where(W > 0, noise, xp.zeros_like(noise))]
    if probing == WHOLE:
        blocks, targets = [*blocks, scale], [*targets, xp.where(scale > 0, noise, xp.zeros_like(noise))]
    member, probe = _owners(k, q, probing)
    W_all = xp.concat(blocks, axis=1)
    B = xp.concat(targets, axis=1)
    zero = problem.space.zeros((p, 1))
    return Batch(W_all, B, member, probe, lambda X: W_all[:, : k * q] * X, zero, mean_y[:, None])


def normal_batch(problem: Problem, rows: Rows, mask: Any, row_mask: Any, probing: str | None) -> Batch:
    """Members on their own rows, given by the columns of `row_mask`, (n, k) or None for all, without a Gram matrix."""
    xp, (k, q) = rows.xp, (mask.shape[1], problem.Y.shape[1])
    D, mean_y, shift, squares = _row_statistics(problem, rows, row_mask)
    scale = _inverse_root(squares, xp)
    W = _masked(mask, scale, problem.space)
    targets = [W * rows.backward(D * (problem.Y[:, t][:, None] - mean_y[t, :][None, :])) for t in range(q)]
    noise = problem.space.put(_noise(mask.shape[0]))[:, None]
    copies = q
    if probing == OWN:
        copies, targets = q + 1, [*targets, xp.where(W > 0, noise, xp.zeros_like(noise))]
    member, probe = _owners(k, q, probing)
    W_all = xp.concat([W] * copies, axis=1)
    plain = row_mask is None and problem.weight is None
    operator = Normal(rows, W_all, None if plain else _repeat(D, copies, xp), _repeat(shift, copies, xp))
    mean_x = rows.centre[:, None] if shift is None else rows.centre[:, None] + shift
    B = xp.concat(targets, axis=1)
    return Batch(operator, B, member, probe, lambda X: W_all[:, : k * q] * X, mean_x, mean_y)


def dual_batch(problem: Problem, rows: Rows, mask: Any, row_mask: Any, probing: str | None) -> Batch:
    """Members with fewer rows than columns, by their rows: minimum norm in the users' units, so W is the mask alone."""
    xp, (k, q) = rows.xp, (mask.shape[1], problem.Y.shape[1])
    D, mean_y, shift, squares = _row_statistics(problem, rows, row_mask)
    W = _masked(mask, xp.astype(squares > 0, squares.dtype), problem.space)  # without columns that hold one value
    taken = xp.astype(D > 0, W.dtype)
    spread = xp.sum(W * squares, axis=0) / xp.sum(taken, axis=0)  # mean squared length of a member's rows
    root = xp.sqrt(D) * _inverse_root(spread, xp)[None, :]
    targets = [root * (problem.Y[:, t][:, None] - mean_y[t, :][None, :]) for t in range(q)]
    null = root * _inverse_root(xp.sum(root * root, axis=0), xp)[None, :] if problem.fit_intercept else None
    noise = problem.space.put(_noise(problem.shape[0]))[:, None]
    copies = q
    if probing == OWN:
        copies, targets = q + 1, [*targets, xp.where(root > 0, noise, xp.zeros_like(noise))]
    member, probe = _owners(k, q, probing)
    parts = [_repeat(part, copies, xp) for part in (W, root, shift, null)]
    operator = Dual(rows, *parts)
    first = problem.space.put(np.arange(k * q))
    mean_x = rows.centre[:, None] if shift is None else rows.centre[:, None] + shift
    B = xp.concat(targets, axis=1)
    return Batch(operator, B, member, probe, lambda U: operator.take(first, xp).adjoint(U), mean_x, mean_y)


def _row_statistics(problem: Problem, rows: Rows, row_mask: Any) -> tuple[Any, Any, Any, Any]:
    """Weights of the rows (n, c), mean targets (q, c), shifted means (p, c) and centred squares (p, c) of members.

    c is the number of members, or one when all members have all rows.
    """
    xp, space = rows.xp, problem.space
    D = space.zeros((rows.shape[0], 1)) + 1 if row_mask is None else space.cast(row_mask)
    if problem.weight is not None:
        D = D * problem.weight[:, None]
    total = xp.sum(D, axis=0)
    raw = rows.spread if row_mask is None else rows.squares(D) * xp.astype(rows.spread > 0, D.dtype)
    if not problem.fit_intercept:
        return D, space.zeros((problem.Y.shape[1], D.shape[1])), None, raw
    mean_y = (problem.Y.T @ D) / total[None, :]
    if row_mask is None:
        return D, mean_y, None, raw
    shift = rows.backward(D) / total[None, :]
    squares = column_squares(raw - total[None, :] * shift**2, raw, xp)
    return D, mean_y, shift, squares


def _owners(k: int, q: int, probing: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Member of every column, and which columns are probes."""
    members = np.arange(k)
    extra = {OWN: members, WHOLE: np.array([ALL, ALL]), None: members[:0]}[probing]
    return np.concatenate([np.tile(members, q), extra]), np.arange(k * q + len(extra)) >= k * q


def _masked(mask: Any, scale: Any, space: Space) -> Any:
    """The scale inside a mask, zero outside, in rows: the mask is a transpose, and mixed orders slow every step."""
    W = space.zeros(mask.shape)
    W += space.xp.where(mask, scale, space.xp.zeros_like(scale))
    return W


def _noise(size: int) -> NDArray[np.float64]:
    """Right-hand side of a probe, the same in every batch and on every device.

    Gaussian: random signs miss the null direction (1, -1) of a repeated column every other time.
    """
    return np.random.default_rng(0).standard_normal(size)


def _inverse_root(squares: Any, xp: Any) -> Any:
    """1 / sqrt, and 0 for columns without length: their coefficient is zero."""
    positive = squares > 0
    return xp.where(positive, 1 / xp.sqrt(xp.where(positive, squares, xp.ones_like(squares))), xp.zeros_like(squares))


def _repeat(array: Any, copies: int, xp: Any) -> Any:
    """The array for every target and probe; single columns serve all."""
    return array if array is None or array.shape[1] == 1 else xp.concat([array] * copies, axis=1)
