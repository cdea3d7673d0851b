"""Whether training data are still what was fitted.

No copy is made of X, so users can change it in place. What is computed from the rows later gives the members' mean
coefficients on the way, and these must be the fitted ones: a check that costs the fit nothing. A warm start computes
nothing from the old rows, so it compares a fingerprint: the means of the columns and their products with y, which a
permutation of the rows changes too. It is mostly a by-product of the fit; otherwise it is made where a warm start is
announced.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._members import Members
from .._members.problem import Problem
from .._moments import weighted_mean
from .._trust import EPS

__all__ = ["Fingerprint", "fingerprint", "same_coefficients", "same_rows"]

Array = NDArray[np.float64]
Fingerprint = tuple[Array, Array]  # means of the columns (p,), X'y about the means (p, q)

SAME_FINGERPRINT = 1e-9  # of a column's spread: a change below it changes nothing that is computed from the rows
SAME_COEFFICIENTS = 1e-5  # of the largest one: solvers agree to more digits


def fingerprint(problem: Problem, *, at_any_cost: bool = True) -> Fingerprint | None:
    """Of rows as they are now; None where it would take a pass over them and is not worth that."""
    if problem.has_moments:
        return problem.moments.mean_x, problem.moments.C
    return _fingerprint(problem) if at_any_cost else None


def _fingerprint(problem: Problem) -> Fingerprint:
    weight = _weight(problem)
    if not problem.fit_intercept:
        return np.zeros(problem.shape[1]), np.asarray(problem.X.T @ (weight[:, None] * problem.Y))
    y = problem.Y - weighted_mean(problem.Y, weight)
    return weighted_mean(problem.X, weight), np.asarray(problem.X.T @ (weight[:, None] * y))


def _weight(problem: Problem) -> Array:
    return np.ones(problem.shape[0]) if problem.weight is None else problem.weight


def same_rows(fitted: Problem, before: Fingerprint | None, given: Problem) -> bool:
    """Whether given rows are those that were fitted, value by value, and these have not changed since."""
    if before is None:
        return False
    X, weight = fitted.X, _weight(fitted)
    mean_x, cross = _fingerprint(fitted)  # of X: y and weights are copies of our own
    squares = X.multiply(X) if hasattr(X, "multiply") else np.square(X, dtype=np.float64)
    length = np.sqrt(np.asarray(squares.T @ weight))[:, None]  # (p, 1)
    size = np.sqrt(weight @ (fitted.Y**2))
    same_means = np.abs(mean_x - before[0]) <= SAME_FINGERPRINT * length[:, 0] / np.sqrt(weight.sum())
    same_cross = np.abs(cross - before[1]) <= SAME_FINGERPRINT * length * size
    return bool(same_means.all() and same_cross.all() and given.equals(fitted))


def same_coefficients(
    coef: Array, intercept: Array | None, fitted: Members, rows: Problem | None, scale: float | Array = 1.0
) -> bool:
    """Whether coefficients (p, q) and intercept (q,) that were found again are the fitted ones times the scale."""
    own = np.asarray(fitted.space.get(fitted.coef), dtype=float) * scale
    constant = np.asarray(fitted.space.get(fitted.intercept), dtype=float)
    largest, rounding = float(np.abs(own).max(initial=0.0)), np.zeros((1, 1))
    size = max(float(np.abs(constant).max()), largest if rows is None else float(np.abs(rows.Y).max()))
    if rows is not None:
        reach = np.where(rows.largest_entries > 0, rows.largest_entries, np.inf)[:, None]
        rounding = 1e4 * EPS * (size / reach)  # coefficients so small are rounding of y
    if not np.all(np.abs(coef - own) <= np.maximum(SAME_COEFFICIENTS * largest, rounding)):
        return False
    return intercept is None or bool(np.all(np.abs(intercept - constant) <= SAME_COEFFICIENTS * size))
