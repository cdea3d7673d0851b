r"""The limit of many determinantal members, and the same without each row: ridge regression, in closed form.

With the mean inverse :math:`M = (G + \lambda D^{-1})^{-1}` (``subsets.Determinantal``), rows :math:`a_l` about their
means, weights w and shares :math:`s_l = w_l / \sum w` (zero without an intercept),

.. math:: b = M X^\top y , \qquad e_l = \frac{y_l - \bar y - a_l' b}{1 - s_l - w_l a_l' M a_l} , \qquad
          b - b_{-l} = w_l M a_l e_l .

Status: exact for a given penalty. That the penalty of an expected size is another one without row l is not in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._trust import beyond_double
from ..subsets import Determinantal
from .deletions import Deleted, Operator, TrainingRows, Visit, rows_of
from .mean import Members
from .problem import Problem

__all__ = ["delete_rows_of_limit", "limit_members", "penalised", "penalised_rows"]

Array = NDArray[np.float64]


def limit_members(coef: Array, mean_x: Array, mean_y: Array) -> Members:
    """Infinitely many members with these mean coefficients."""
    if not np.isfinite(coef).all():
        raise ValueError(beyond_double("coefficients", "X and y"))
    return Members(coef, mean_y - mean_x @ coef, mean_y, np.empty(0, dtype=np.int64), np.empty(0), "limit", 0)


def penalised(G: Array, C: Array, spreads: Array, penalty: float) -> Array:
    """Mean (p, q) of all determinantal members with these spreads and penalty, from products of the columns."""
    S, root, out = _support(spreads, C)
    A = root * G[np.ix_(S, S)] * root[:, 0]
    np.einsum("ii->i", A)[:] += penalty
    if len(S):
        out[S] = root * la.solve(A, root * C[S], assume_a="pos", overwrite_a=True, check_finite=False)
    return out


def penalised_rows(Z: Array, y: Array, spreads: Array, penalty: float) -> Array:
    """The same from centred rows, for more columns than rows."""
    S, root, out = _support(spreads, np.empty((Z.shape[1], y.shape[1])))
    A = Z[:, S] * root[:, 0]
    wide = len(S) > len(Z)
    K = A @ A.T if wide else A.T @ A
    np.einsum("ii->i", K)[:] += penalty
    right = y if wide else A.T @ y
    found = la.solve(K, right, assume_a="pos", overwrite_a=True, check_finite=False) if len(S) else right
    out[S] = root * (A.T @ found if wide else found)
    return out


def _support(spreads: Array, like: Array) -> tuple[NDArray[np.int64], Array, Array]:
    """Columns with a spread, its root (columns, 1), and zeros for all columns."""
    S = np.flatnonzero(spreads > 0)
    return S, np.sqrt(spreads[S])[:, None], np.zeros(like.shape)


def delete_rows_of_limit(
    problem: Problem, process: Determinantal, *, visit: Visit | None = None, operator: bool = False
) -> tuple[Deleted, TrainingRows]:
    """What ``delete_rows`` sums over members, for infinitely many of them."""
    (n, p), q = problem.shape, problem.Y.shape[1]
    rows = rows_of(problem, np.flatnonzero(process.spreads == 0))
    half = np.sqrt(process.spreads)[:, None] * process.vectors / np.sqrt(process.values + process.penalty)  # M = hh'
    share, weight, Y = rows.share[:, None], rows.weight, problem.Y - rows.mean_y
    change = share / (1 - share) * Y
    sums = Deleted(
        np.zeros((p, q)), np.zeros(q), np.empty((n, q)), rows.mean_y - change, change, np.empty((n, q)),
        Operator(half @ half.T, None, rows.share, np.zeros(n)) if operator else None,
    )  # fmt: skip
    for here in rows.blocks():
        x = rows.block(here)[:-1]
        sums.coef[:] += half @ ((half.T @ x) @ (weight[here, None] * Y[here]))
    for here in rows.blocks():
        x = rows.block(here)[:-1]
        inner = half.T @ x  # (rank, rows)
        left = 1 - rows.share[here] - weight[here] * np.sum(inner**2, axis=0)
        error = (Y[here] - x.T @ sums.coef) / left[:, None]
        sums.residual[here], sums.moved[here] = error, share[here] * error
        if visit is not None:
            by_row: Any = weight[here] * (half @ inner)  # (p, rows)
            visit(np.arange(p), here, by_row * error.T[:, None])
    sums.intercept[:] = rows.mean_y - rows.mean_x @ sums.coef
    return sums, rows
