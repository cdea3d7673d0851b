r"""Compare penalties of ridge regression, which are expected sizes of determinantal members.

The mean of all determinantal members is ridge regression on standardised columns, and the expected number of columns
of a member is its degrees of freedom :math:`\sum_k s_k / (s_k + \lambda)`, with the squared singular values s of the
standardised rows (status: theorem). So tuning the size is tuning the penalty. One decomposition on the smaller side of
the data gives every penalty, down to 1e-9 of the largest eigenvalue.

**Leave-one-out.** With left singular vectors U, the residual of a row without it is

.. math:: \frac{r_l + \sum_k U_{lk} \, \lambda / (s_k + \lambda) \, (U'y)_k}
               {g_l + \sum_k U_{lk}^2 \, \lambda / (s_k + \lambda)},

where :math:`r = y - UU'y` and :math:`g_l = 1 - w_l / \sum w - \sum_k U_{lk}^2` are zero for rows that columns can fit
exactly (status: exact). Written with 1 - h, both would be rounding there, and decide about the penalty.
Generalised cross-validation has the mean of all denominators in place of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._execution.threads import cached_property
from .._members.problem import Problem
from .._trust import EPS
from ..subsets import penalty_of_size
from .fold_data import FoldData, TestRows, first_least, standardised_rows
from .penalised import JITTER, Fits, RowFits

Array = NDArray[np.float64]

LARGEST_DEGREES = 0.7  # degrees of freedom of ridge regression for each row, at most
SMALLEST_SIZE = 0.05  # degrees of freedom below which a penalty is not tried
COARSE_PENALTIES = 49  # on twelve decades
FINE_PENALTIES = 7  # between the neighbours of the best of them
SQUARED_ACCURACY = 1e-6  # of the largest eigenvalue of products: smaller ones lost ten digits, and come from the data
EXACT_ROW = 1e-10  # of a row outside the span of the columns: less is rounding
SMALLEST_LEFT = 1e-200  # so that rows that nothing is left of do not divide by zero
BLOCK_ENTRIES = 1 << 18  # numbers in a block of rows: it stays in a cache


@dataclass(frozen=True)
class Errors:
    """Mean squared errors of prediction of some penalties, and their standard errors over rows, (penalties,) each."""

    mse: Array
    standard_error: Array


ErrorsOf = Callable[[Array], Errors]


@dataclass(frozen=True)
class LeaveOneOut:
    """Ridge regression of standardised, centred, sqrt-weighted rows without each of them, for any penalty."""

    s2: Array  # (r,) squared singular values, falling; empty where all columns are constant
    unit: Array  # (p,) standard deviations of the columns
    U: Array  # (n, r) left singular vectors
    along: Array  # (r, q) U'Y
    outside: Array  # (n,) of every row, what neither columns nor intercept can fit
    rest: Array  # (n, q) of the targets, likewise
    deviation: Array  # (n, q) of the targets from the mean of the other rows, times the roots of the weights
    root: Array  # (n,) roots of the weights
    jitter: float  # on top of every penalty, as in the fits
    generalised: bool = False  # cross-validation with the mean of all denominators

    @classmethod
    def of(cls, problem: Problem, whole: Fits, unit: Array, *, generalised: bool = False) -> LeaveOneOut:
        """From fits of all rows, and the units of their columns."""
        s2, E = eigenvalues(whole.products)
        rows = whole if isinstance(whole, RowFits) else standardised_rows(problem)[0]
        if len(s2) and s2[-1] < SQUARED_ACCURACY * s2[0]:
            U, s, _ = np.linalg.svd(rows.A, full_matrices=False)
            U = U[:, : len(s2)]
            s2 = s[: len(s2)] ** 2
        else:
            U = E if isinstance(whole, RowFits) else rows.A @ (E / np.sqrt(s2))
        along = U.T @ rows.B
        intercept_share = rows.root**2 / rows.weight * rows.centred
        outside = 1 - intercept_share - np.einsum("lk,lk->l", U, U)
        exact = outside <= EXACT_ROW
        outside[exact] = 0.0
        rest = np.where(exact[:, None], 0.0, rows.B - U @ along)
        jitter = JITTER * float(np.trace(whole.products)) / len(whole.products)
        deviation = rows.B / (1 - intercept_share)[:, None]
        return cls(s2, unit, U, along, outside, rest, deviation, rows.root, jitter, generalised)

    @property
    def name(self) -> str:
        """Name of the criterion."""
        return "gcv" if self.generalised else "loo"

    @property
    def n_rows(self) -> int:
        """Rows that penalties are chosen for."""
        return len(self.U)

    def _lost(self, penalties: Array) -> Array:
        """What a penalty takes of every direction, (r, penalties)."""
        shifted = penalties + self.jitter
        return np.asarray(shifted / (self.s2[:, None] + shifted))

    def errors(self, penalties: Array, scale: float = 1.0) -> Errors:
        """Leave-one-out errors of predictions with a scale, in two products for each block of rows and target."""
        lost = self._lost(penalties)
        mean_left = self.outside.mean() + np.mean(self.U**2, axis=0) @ lost
        weight = self.root**2
        total = float(weight.sum())
        n_targets = self.rest.shape[1]
        squares = np.zeros(len(penalties))  # sums over rows of w e, w^2 e and w^2 e^2, with mean squared errors e
        weighted = np.zeros(len(penalties))
        fourth = np.zeros(len(penalties))
        step = max(1, BLOCK_ENTRIES // (self.U.shape[1] + len(penalties)))
        for start in range(0, len(self.U), step):
            here = slice(start, start + step)
            U = self.U[here]
            divisor = mean_left if self.generalised else self.outside[here, None] + U**2 @ lost
            of_rows = np.zeros((len(U), len(penalties)))  # w e
            for t in range(n_targets):
                residual = self.rest[here, t, None] + U @ (lost * self.along[:, t, None])
                residual /= np.maximum(divisor, SMALLEST_LEFT)
                if scale != 1:
                    residual = scale * residual + (1 - scale) * self.deviation[here, t, None]
                of_rows += residual**2 / n_targets
            squares += of_rows.sum(axis=0)
            weighted += weight[here] @ of_rows
            fourth += np.einsum("lp,lp->p", of_rows, of_rows)
        mse = squares / total
        variance = (fourth - 2 * mse * weighted + mse**2 * float(weight @ weight)) / total**2
        return Errors(mse, np.sqrt(np.maximum(variance, 0.0)))

    def slope(self, penalty: float) -> tuple[float, float]:
        """Not needed: the scale comes from the residuals."""
        return 1.0, 0.0

    def residuals(self, penalty: float) -> Array:
        """Leave-one-out residuals of the targets, (n, q)."""
        lost = self._lost(np.array([penalty]))[:, 0]
        left = np.maximum(self.outside + self.U**2 @ lost, SMALLEST_LEFT)
        return np.asarray((self.rest + self.U @ (lost[:, None] * self.along)) / (left * self.root)[:, None])


@dataclass(frozen=True)
class FoldErrors:
    """Ridge regression of one or several targets without each fold of rows."""

    targets: list[FoldData]  # one for each target, of the same folds
    n_rows: int  # of the smallest training set, repeated rows once: they add no rank
    name = "kfold"

    @cached_property
    def s2(self) -> Array:
        """Squared singular values of all rows, falling."""
        return eigenvalues(self.targets[0].all_rows.products)[0]

    @property
    def unit(self) -> Array:
        """Standard deviations of the columns."""
        return self.targets[0].unit

    def residuals(self, penalty: float) -> Array | None:
        """Residuals (n, q) of all rows in their test folds; None where some are in none or only moments are known."""
        data = self.targets[0]
        out = np.full((data.n_rows, len(self.targets)), np.nan)
        for t, of_target in enumerate(self.targets):
            for fold, coefs in zip(of_target.folds, ridge_coefs(of_target, np.array([penalty])), strict=True):
                residual = fold.residuals(coefs)
                if residual is None or fold.rows is None:
                    return None
                out[fold.rows, t] = residual[:, 0]
        return None if np.isnan(out).any() else out

    def slope(self, penalty: float) -> tuple[float, float]:
        """Least-squares slope of targets on held-out predictions and its variance; one and zero without predictions."""
        top = bottom = squares = 0.0
        for data in self.targets:
            for fold, coefs in zip(data.folds, ridge_coefs(data, np.array([penalty])), strict=True):
                # residuals of the prediction and of the mean target, whose difference is the prediction
                S = fold.weight * fold.products(np.vstack([coefs, np.zeros_like(coefs)]))
                top += float(S[1, 1] - S[0, 1])
                bottom += float(S[1, 1] - 2 * S[0, 1] + S[0, 0])
                squares += float(S[1, 1])
        count = self.targets[0].n_rows * len(self.targets)
        if not bottom > 1e-20 * squares or count < 3:
            return 1.0, 0.0
        slope = top / bottom
        return slope, max(0.0, squares - slope * top) / bottom / count

    def errors(self, penalties: Array, scale: float = 1.0) -> Errors:
        """Errors over all folds of predictions with a scale."""
        coefs = [[scale * b for b in ridge_coefs(data, penalties)] for data in self.targets]
        of_targets = [
            [fold.errors(b) for fold, b in zip(data.folds, coefs_of_target, strict=True)]
            for data, coefs_of_target in zip(self.targets, coefs, strict=True)
        ]
        weight = self.targets[0].weight
        mse = np.asarray(weight @ np.mean(of_targets, axis=0) / weight.sum())
        return Errors(mse, self._standard_error(coefs, mse))

    def _standard_error(self, coefs: list[list[Array]], mse: Array) -> Array:
        """Standard error of the errors over rows; of moments its order is known, that of Gaussian errors."""
        data = self.targets[0]
        variance = np.zeros(len(mse))
        for number, fold in enumerate(data.folds):
            if not isinstance(fold.test, TestRows):
                return np.asarray(mse * np.sqrt(2 / data.n_rows))
            squares = np.zeros((len(fold.test.weight), len(mse)))
            for of_target, coefs_of_target in zip(self.targets, coefs, strict=True):
                residuals = of_target.folds[number].residuals(coefs_of_target[number])
                assert residuals is not None
                squares += residuals**2 / len(self.targets)
            share = fold.test.weight / data.weight.sum()
            variance += np.sum((share[:, None] * (squares - mse)) ** 2, axis=0)
        return np.asarray(np.sqrt(variance))


def ridge_coefs(data: FoldData, penalties: Array) -> list[Array]:
    """Coefficients (penalties, p) of ridge regression on the training rows of every fold."""
    all_alike = np.ones(len(data.unit))
    return [fold.fits.system(all_alike).coefficients(penalties, JITTER)[:, :, 0] for fold in data.folds]


@dataclass(frozen=True)
class PenaltyPath:
    """Penalties that were compared, from the largest to the smallest, with the sizes and errors that go with them."""

    sizes: Array  # (count,) expected sizes, rising
    penalties: Array  # (count,)
    errors: Errors
    best: int


def ridge_penalty(problem: Problem, data: FoldData) -> float | None:
    """The penalty of least leave-one-out error, in units of the columns; None where all of them are constant."""
    rows = LeaveOneOut.of(problem, data.all_rows, data.unit)
    if not len(rows.s2):
        return None
    limit = LARGEST_DEGREES * (len(rows.U) - problem.fit_intercept)
    return _searched(rows.errors, rows.s2, limit) / len(data.unit)


def ridge_penalty_of_folds(data: FoldData, lost: int) -> float | None:
    """The penalty of least error over folds; `lost` degrees of freedom of the rows go to the intercept."""
    s2, _ = eigenvalues(data.all_rows.products)
    if not len(s2):
        return None
    limit = LARGEST_DEGREES * (min(fold.fits.n_rows for fold in data.folds) - lost)
    systems = [(fold, fold.fits.system(np.ones(len(data.unit)))) for fold in data.folds]

    def errors(penalties: Array) -> Errors:
        of_folds = [fold.errors(system.coefficients(penalties, JITTER)[:, :, 0]) for fold, system in systems]
        mse = np.asarray(data.weight @ np.stack(of_folds))
        return Errors(mse, mse)

    return _searched(errors, s2, limit) / len(data.unit)


def _searched(errors: ErrorsOf, s2: Array, limit: float) -> float:
    path = search(errors, s2, limit)
    return float(path.penalties[path.best])


def search(errors: ErrorsOf, s2: Array, limit: float) -> PenaltyPath:
    """Compare a coarse grid of penalties over twelve decades, then a fine one between the neighbours of its best.

    Degrees of freedom are at most `limit`. Of tied penalties the largest is the best.
    """
    if not len(s2):
        raise ValueError("every column of X is constant, so there is no size of members to choose. Check the columns.")
    grid = np.geomspace(s2[0] * 1e-9, s2[0] * 1e3, COARSE_PENALTIES)
    sizes = expected_sizes(s2, grid)
    inside = grid[(sizes <= limit) & (sizes > SMALLEST_SIZE)]
    grid = inside if sizes[0] <= limit else np.r_[penalty_of_size(s2, limit), inside]
    if not len(grid):
        grid = s2[:1]
    grid = grid[::-1]
    coarse = errors(grid)
    best = first_least(coarse.mse)
    fine_grid = np.geomspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], FINE_PENALTIES)
    fine = errors(fine_grid)
    chosen = fine_grid[first_least(fine.mse)]
    penalties, first = np.unique(np.r_[fine_grid, grid], return_index=True)
    mse = np.r_[fine.mse, coarse.mse][first]
    standard_error = np.r_[fine.standard_error, coarse.standard_error][first]
    return path_of(s2, penalties, Errors(mse, standard_error), chosen)


def compare(errors: ErrorsOf, s2: Array, sizes: Array) -> PenaltyPath:
    """Compare the penalties of given expected sizes."""
    penalties = np.array([penalty_of_size(s2, size) for size in sizes])
    found = errors(penalties)
    largest_first = np.argsort(-penalties)
    return path_of(s2, penalties, found, penalties[largest_first[first_least(found.mse[largest_first])]])


def path_of(s2: Array, penalties: Array, errors: Errors, chosen: float) -> PenaltyPath:
    """The compared penalties in falling order."""
    order = np.argsort(-penalties, kind="stable")
    penalties = penalties[order]
    ordered = Errors(errors.mse[order], errors.standard_error[order])
    best = int(np.flatnonzero(penalties == chosen)[0])
    return PenaltyPath(expected_sizes(s2, penalties), penalties, ordered, best)


def expected_sizes(s2: Array, penalties: Array) -> Array:
    """Degrees of freedom of ridge regression, the expected sizes of determinantal members."""
    return np.asarray(np.sum(s2[:, None] / (s2[:, None] + penalties), axis=0))


def eigenvalues(G: Array) -> tuple[Array, Array]:
    """Eigenvalues in falling order and eigenvectors, without those that are rounding."""
    s2, E = np.linalg.eigh(G)
    rounding = max(1e-13, 8 * EPS * len(s2))  # of the largest eigenvalue
    keep = s2 > s2[-1] * rounding if len(s2) and s2[-1] > 0 else np.zeros(len(s2), dtype=bool)
    return s2[keep][::-1], E[:, keep][:, ::-1]
