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
from numpy.typing import NDArray

from .._trust import beyond_double
from ..subsets import Determinantal
from .deletions import Deleted, Operator, TrainingRows, Visit, rows_of
from .mean import Members
from .problem import Problem

__all__ = ["delete_rows_of_limit", "limit_members"]

Array = NDArray[np.float64]


def limit_members(process: Determinantal, C: Array, mean_x: Array, mean_y: Array) -> Members:
    """Infinitely many members, from products C = X'y about the means."""
    coef = process.mean_coefficients(C)
    if not np.isfinite(coef).all():
        raise ValueError(beyond_double("coefficients", "X and y"))
    return Members(coef, mean_y - mean_x @ coef, mean_y, np.empty(0, dtype=np.int64), np.empty(0), "limit", 0)


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
