"""The training rows that a fitted model refers to, and whether they are still what was fitted.

No copy is made of X, so users can change it in place. What is computed from the rows later gives the members' mean
coefficients on the way, and these must be the fitted ones: a check that costs the fit nothing. A warm start computes
nothing from the old rows, so it compares their look: the means of the columns and their products with y, which a
permutation of the rows changes too. It is mostly a by-product of the fit; otherwise it is kept where a warm start is
announced.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._engines import NeedsRows
from .._members import Members
from .._members.problem import Problem
from .._moments import weighted_mean
from .._trust import EPS

__all__ = ["KeptRows"]

Array = NDArray[np.float64]

SAME_LOOK = 1e-9  # of a column's spread: a change below it changes nothing that is computed from the rows
SAME_COEFFICIENTS = 1e-5  # of the largest one: solvers agree to more digits


@dataclass(frozen=True)
class KeptRows:
    """Rows of a fit, with what they looked like then."""

    problem: Problem
    look: tuple[Array, Array] | None  # means of the columns (p,), X'y about the means (p, q)

    @classmethod
    def of(cls, problem: Problem, *, remember: bool) -> KeptRows:
        """Rows as they are now; `remember` their look even if it takes a pass over them."""
        if problem.has_moments:
            return cls(problem, (problem.moments.mean_x, problem.moments.C))
        return cls(problem, _look(problem) if remember else None)

    def same_as(self, problem: Problem) -> bool:
        """Whether other rows are those that were fitted, value by value."""
        return self.look is not None and self._unchanged(*self.look) and problem.equals(self.problem)

    def _unchanged(self, mean_before: Array, cross_before: Array) -> bool:
        """Whether X still looks as it did; y and weights are copies of our own."""
        X, weight = self.problem.X, _weight(self.problem)
        mean_x, cross = _look(self.problem)
        squares = X.multiply(X) if hasattr(X, "multiply") else np.square(X, dtype=np.float64)
        length = np.sqrt(np.asarray(squares.T @ weight))[:, None]  # (p, 1)
        size = np.sqrt(weight @ (self.problem.Y**2))
        same_means = np.abs(mean_x - mean_before) <= SAME_LOOK * length[:, 0] / np.sqrt(weight.sum())
        return bool(same_means.all() and np.all(np.abs(cross - cross_before) <= SAME_LOOK * length * size))

    def check_members(self, what: str, coef: Array, intercept: Array, fitted: Members) -> None:
        """Raise where members of the present rows have another mean, (p, q) and (q,), than those that were fitted."""
        size = max(np.abs(fitted.intercept).max(), np.abs(self.problem.Y).max())
        reach = np.where(self.problem.largest_entries > 0, self.problem.largest_entries, np.inf)[:, None]
        rounding = 1e4 * EPS * (size / reach)  # coefficients so small are rounding of y
        far = np.abs(coef - fitted.coef) > np.maximum(
            SAME_COEFFICIENTS * np.abs(fitted.coef).max(initial=0.0), rounding
        )
        if far.any() or np.abs(intercept - fitted.intercept).max() > SAME_COEFFICIENTS * size:
            raise _changed(what)


def _changed(what: str) -> NeedsRows:
    return NeedsRows(
        f"{what} is computed from the training rows, but X was changed in place after fit. Fit again, or give fit a "
        f"copy (X.copy()) if you go on changing X."
    )


def _weight(problem: Problem) -> Array:
    return np.ones(problem.shape[0]) if problem.weight is None else problem.weight


def _look(problem: Problem) -> tuple[Array, Array]:
    weight = _weight(problem)
    if not problem.fit_intercept:
        return np.zeros(problem.shape[1]), np.asarray(problem.X.T @ (weight[:, None] * problem.Y))
    y = problem.Y - weighted_mean(problem.Y, weight)
    return weighted_mean(problem.X, weight), np.asarray(problem.X.T @ (weight[:, None] * y))
