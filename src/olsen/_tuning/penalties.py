r"""Compare penalties of ridge regression, which are expected sizes of determinantal members.

The mean of all determinantal members is ridge regression on standardised columns, and the expected
number of columns of a member is its degrees of freedom :math:`\sum_k s_k / (s_k + \lambda)`, with
the squared singular values s of the standardised rows (status: theorem). So tuning the size is
tuning the penalty. One decomposition on the smaller side of the data gives every penalty, down to
1e-9 of the largest eigenvalue.

**Leave-one-out.** With left singular vectors U, the residual of a row without it is

.. math:: \frac{r_l + \sum_k U_{lk} \, \lambda / (s_k + \lambda) \, (U'y)_k}
               {g_l + \sum_k U_{lk}^2 \, \lambda / (s_k + \lambda)},

where :math:`r = y - UU'y` and :math:`g_l = 1 - w_l / \sum w - \sum_k U_{lk}^2` are zero for rows
that columns can fit exactly (status: exact). Written with 1 - h, both would be rounding errors
there, and would decide the penalty. Generalised cross-validation replaces every denominator by the
mean of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._data.arrangement import TIE_TOL
from .._data.folds import FoldData, first_least, least_by_target
from .._data.implicit import ImplicitRows
from .._data.rows import RowData
from .._data.standardised import Standardised, StandardisedRows
from .._execution.threads import cached_property
from .._members.cholesky import JITTER
from .._members.implicit_products import ImplicitProducts
from .._members.penalised import MIN_BATCHED_TARGETS, NormalEquations, Spectrum, solve
from .._trust import EPS
from ..subsets import penalty_of_size

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

LARGEST_DEGREES = 0.7  # degrees of freedom of ridge regression for each row, at most
SMALLEST_SIZE = 0.05  # degrees of freedom below which a penalty is not tried
SMALLEST_PENALTY = 1e-9  # fraction of the largest eigenvalue
LARGEST_PENALTY = 1e3  # multiple of the largest eigenvalue
COARSE_PENALTIES = 49  # number on twelve decades
FINE_PENALTIES = 7  # number between the neighbours of the best coarse penalty
# fraction of the largest eigenvalue: smaller ones lost ten digits, and need an SVD of the rows, unless
# penalties are larger, beside which they do not count
SQUARED_ACCURACY = 1e-6
EXACT_ROW_TOL = 1e-10  # squared length of a row outside the span of the columns: less is rounding
SMALLEST_DENOMINATOR = 1e-200  # so that rows that columns fit exactly do not divide by zero
MAX_BATCHED_COEFS = 1 << 22  # coefficients of targets that are compared together
BLOCK_ENTRIES = 1 << 18  # numbers in a block of rows, which stays in a cache


@dataclass(frozen=True)
class Errors:
    """Mean squared errors of prediction by penalty, and their standard errors over rows,
    (penalties,) each.
    """

    mse: Array
    standard_error: Array


ErrorsOf = Callable[[Array], Errors]
# errors (penalties, targets), up to a factor, of penalties and of the targets at some positions
ErrorsByTarget = Callable[[Array, Indices], Array]


@dataclass(frozen=True)
class LeaveOneOut:
    """Leave-one-out errors of ridge regression of standardised, centred, sqrt-weighted rows, for
    any penalty.
    """

    s2: Array  # (r,) squared singular values, falling; empty where all columns are constant
    unit: Array  # (p,) standard deviations of the columns
    U: Array  # (n, r) left singular vectors
    along: Array  # (r, q) U'Y
    unfitted: Array  # (n,) g: one minus the leverage of a row without penalty
    residual: Array  # (n, q) r: residuals without penalty
    deviation: (
        Array  # (n, q) deviations of the targets from the mean of the other rows, sqrt-weighted
    )
    root: Array  # (n,) square roots of the weights
    jitter: float  # added to every penalty, as in the fits
    generalised: bool = False  # cross-validation with the mean of all denominators

    @classmethod
    def of(
        cls, problem: RowData, train: Standardised, unit: Array, *, generalised: bool = False
    ) -> LeaveOneOut:
        """Decompose the rows of a problem, from the standardised rows and the standard deviations of the
        columns.
        """
        s2, E = eigenvalues(train)
        rows = StandardisedRows.of(problem)[0] if train.rows is None else train.rows
        smallest = smallest_penalty(s2, LARGEST_DEGREES * (len(rows.root) - rows.null_rank))
        if rows.A is not None and len(s2) and max(s2[-1], smallest) < SQUARED_ACCURACY * s2[0]:
            U, s, _ = np.linalg.svd(rows.A, full_matrices=False)
            U = U[:, : len(s2)]
            s2 = s[: len(s2)] ** 2
        else:
            U = E if rows is train else rows.gathered(slice(None)) @ (E / np.sqrt(s2))
        along = U.T @ rows.B
        null_leverages = rows.null_leverages
        unfitted = 1 - null_leverages - np.einsum("lk,lk->l", U, U)
        exact = unfitted <= EXACT_ROW_TOL
        unfitted[exact] = 0.0
        return cls(
            s2=s2,
            unit=unit,
            U=U,
            along=along,
            unfitted=unfitted,
            residual=np.where(exact[:, None], 0.0, rows.B - U @ along),
            deviation=rows.B / (1 - null_leverages)[:, None],
            root=rows.root,
            jitter=JITTER * float(np.trace(train.products)) / len(train.products),
            generalised=generalised,
        )

    @property
    def name(self) -> str:
        """Name of the criterion."""
        return "gcv" if self.generalised else "loo"

    @property
    def n_rows(self) -> int:
        """Number of rows that penalties are chosen for."""
        return len(self.U)

    def _shrinkage(self, penalties: Array) -> Array:
        """Fraction by which a penalty shrinks the fit along every singular vector, (r, penalties)."""
        shifted = penalties + self.jitter
        return np.asarray(shifted / (self.s2[:, None] + shifted))

    def errors(self, penalties: Array, scale: float = 1.0) -> Errors:
        """Leave-one-out errors of scaled predictions, in two matrix products per block of rows and
        target.
        """
        weight = self.root**2
        total = float(weight.sum())
        n_targets = self.residual.shape[1]
        squares = np.zeros(
            len(penalties)
        )  # sums over rows of w e, w^2 e and w^2 e^2, with mean squared errors e
        weighted = np.zeros(len(penalties))
        fourth = np.zeros(len(penalties))
        for block, of_targets in self._blocks(penalties, np.arange(n_targets)):
            row_errors = np.zeros((len(weight[block]), len(penalties)))  # w e
            for t, residual in enumerate(of_targets):
                if scale != 1:
                    residual = scale * residual + (1 - scale) * self.deviation[block, t, None]
                row_errors += residual**2 / n_targets
            squares += row_errors.sum(axis=0)
            weighted += weight[block] @ row_errors
            fourth += np.einsum("lp,lp->p", row_errors, row_errors)
        mse = squares / total
        variance = (fourth - 2 * mse * weighted + mse**2 * float(weight @ weight)) / total**2
        return Errors(mse, np.sqrt(np.maximum(variance, 0.0)))

    def by_target(self, penalties: Array, targets: Indices) -> Array:
        """Leave-one-out errors of some targets, (penalties, targets), up to a factor."""
        squares = np.zeros((len(penalties), len(targets)))
        for _, of_targets in self._blocks(penalties, targets):
            for i, residual in enumerate(of_targets):
                squares[:, i] += np.einsum("lp,lp->p", residual, residual)
        return squares

    def _blocks(
        self, penalties: Array, targets: Indices
    ) -> Iterator[tuple[slice, Iterator[Array]]]:
        """Blocks of rows, with the sqrt-weighted residuals (rows, penalties) of every target."""
        shrinkage = self._shrinkage(penalties)
        mean_denominator = self.unfitted.mean() + np.mean(self.U**2, axis=0) @ shrinkage
        step = max(1, BLOCK_ENTRIES // (self.U.shape[1] + len(penalties)))
        for start in range(0, len(self.U), step):
            block = slice(start, start + step)
            U = self.U[block]
            denominator = (
                np.broadcast_to(mean_denominator, (len(U), len(penalties)))
                if self.generalised
                else self.unfitted[block, None] + U**2 @ shrinkage
            )
            inverse = 1 / np.maximum(denominator, SMALLEST_DENOMINATOR)
            yield (
                block,
                (
                    (self.residual[block, t, None] + U @ (shrinkage * self.along[:, t, None]))
                    * inverse
                    for t in targets.tolist()
                ),
            )

    def slope(self, penalty: float) -> tuple[float, float]:
        """Slope and variance of no shrinkage; the scale comes from the residuals instead."""
        return 1.0, 0.0

    def residuals(self, penalty: float) -> Array:
        """Leave-one-out residuals of the targets, (n, q)."""
        shrinkage = self._shrinkage(np.array([penalty]))[:, 0]
        denominator = np.maximum(self.unfitted + self.U**2 @ shrinkage, SMALLEST_DENOMINATOR)
        numerator = self.residual + self.U @ (shrinkage[:, None] * self.along)
        return np.asarray(numerator / (denominator * self.root)[:, None])


@dataclass(frozen=True)
class FoldErrors:
    """Errors over folds of ridge regression of one or several targets."""

    data: FoldData
    n_rows: int  # distinct rows of the smallest training set: repeated rows add no rank
    name = "kfold"

    @cached_property
    def s2(self) -> Array:
        """Squared singular values of all rows, falling."""
        return squared_singular_values(self.data.all_rows)

    @property
    def unit(self) -> Array:
        """Standard deviations of the columns."""
        return self.data.unit

    def residuals(self, penalty: float) -> Array | None:
        """Residuals (n, q) of all rows in test folds; None if rows are in no test fold or only
        moments are known.
        """
        out = np.full((self.data.n_rows, self.data.n_targets), np.nan)
        coefs_of_folds = ridge_coefs(self.data, np.array([penalty]))
        for fold, coefs in zip(self.data.folds, coefs_of_folds, strict=True):
            residual = fold.residuals(coefs)
            if residual is None or fold.test.rows is None:
                return None
            out[fold.test.rows] = residual[:, 0]
        return None if np.isnan(out).any() else out

    def slope(self, penalty: float) -> tuple[float, float]:
        """Least-squares slope of targets on held-out predictions and its variance; one and zero
        without predictions.
        """
        top = bottom = squares = 0.0
        coefs_of_folds = ridge_coefs(self.data, np.array([penalty]))
        for fold, coefs in zip(self.data.folds, coefs_of_folds, strict=True):
            # residuals of the prediction and of the mean target, whose difference is the
            # prediction
            products = fold.products(np.concatenate([coefs, np.zeros_like(coefs)]))
            S = fold.weight * products.sum(axis=0)
            top += float(S[1, 1] - S[0, 1])
            bottom += float(S[1, 1] - 2 * S[0, 1] + S[0, 0])
            squares += float(S[1, 1])
        count = self.data.n_rows * self.data.n_targets
        if not bottom > 1e-20 * squares or count < 3:
            return 1.0, 0.0
        slope = top / bottom
        return slope, max(0.0, squares - slope * top) / bottom / count

    def errors(self, penalties: Array, scale: float = 1.0) -> Errors:
        """Errors of scaled predictions over all folds, averaged over targets."""
        coefs = [scale * b for b in ridge_coefs(self.data, penalties)]
        of_folds = [
            fold.errors(b).mean(axis=1) for fold, b in zip(self.data.folds, coefs, strict=True)
        ]
        weight = self.data.weight
        mse = np.asarray(weight @ np.stack(of_folds) / weight.sum())
        return Errors(mse, self._standard_error(coefs, mse))

    def _standard_error(self, coefs: list[Array], mse: Array) -> Array:
        """Standard error of the errors over rows; moments only give its order, that of Gaussian
        errors.
        """
        variance = np.zeros(len(mse))
        for fold, of_fold in zip(self.data.folds, coefs, strict=True):
            residuals = fold.residuals(of_fold)
            if residuals is None or fold.test.row_weights is None:
                return np.asarray(mse * np.sqrt(2 / self.data.n_rows))
            squares = np.mean(residuals**2, axis=2)
            fractions = fold.test.row_weights / self.data.weight.sum()
            variance += np.sum((fractions[:, None] * (squares - mse)) ** 2, axis=0)
        return np.asarray(np.sqrt(variance))


def ridge_coefs(data: FoldData, penalties: Array) -> list[Array]:
    """Coefficients (penalties, p, q) of ridge regression on the training rows of every fold."""
    prior_variances = np.ones(len(data.unit))
    return [
        solve(NormalEquations.of(fold.train, prior_variances), penalties, JITTER)
        for fold in data.folds
    ]


@dataclass(frozen=True)
class PenaltyPath:
    """Penalties that were compared, from the largest to the smallest, with their expected sizes and
    errors.
    """

    sizes: Array  # (count,) expected sizes, rising
    penalties: Array  # (count,)
    errors: Errors
    best: int


def ridge_penalty(problem: RowData, data: FoldData) -> Array | None:
    """The penalties (q,) of least leave-one-out error, in units of the columns; None if all columns
    are constant.
    """
    rows = LeaveOneOut.of(problem, data.all_rows, data.unit)
    if not len(rows.s2):
        return None
    limit = LARGEST_DEGREES * (len(rows.U) - problem.null_rank)
    return search_by_target(rows.by_target, rows.s2, limit, data.n_targets) / len(data.unit)


def ridge_penalty_of_folds(data: FoldData, null_rank: int) -> Array | None:
    """The penalties (q,) of least error over folds; columns that are always in take degrees of
    freedom."""
    s2 = spectrum(data.all_rows)
    if not len(s2):
        return None
    limit = LARGEST_DEGREES * (min(fold.train.n_rows for fold in data.folds) - null_rank)
    few_targets = data.n_targets < MIN_BATCHED_TARGETS or isinstance(data.all_rows, ImplicitRows)
    errors = _errors_of_few_targets(data) if few_targets else _errors_of_many_targets(data)
    return search_by_target(errors, s2, limit, data.n_targets) / len(data.unit)


def _errors_of_few_targets(data: FoldData) -> ErrorsByTarget:
    """Errors of ridge regression over folds, from the normal equations of each target."""
    equations = [NormalEquations.of(fold.train, np.ones(len(data.unit))) for fold in data.folds]

    def errors(penalties: Array, targets: Indices) -> Array:
        total = np.zeros((len(penalties), len(targets)))
        for i, t in enumerate(targets.tolist()):
            for fold, of_all in zip(data.folds, equations, strict=True):
                one = np.array([t])
                of_target = replace(of_all, right=of_all.right[:, one])
                coefs = solve(of_target, penalties, JITTER)
                total[:, i] += fold.weight * fold.targets_at(one).errors(coefs)[:, 0]
        return total

    return errors


def _errors_of_many_targets(data: FoldData) -> ErrorsByTarget:
    """Errors of ridge regression over folds, from eigendecompositions of the training sets, which
    all targets share.
    """
    spectra = [Spectrum.of(fold.train) for fold in data.folds]
    held_out = [
        fold.test.in_basis(spectrum.basis)
        for fold, spectrum in zip(data.folds, spectra, strict=True)
    ]

    def errors(penalties: Array, targets: Indices) -> Array:
        step = max(1, MAX_BATCHED_COEFS // (len(penalties) * len(data.unit)))
        parts = [targets[start : start + step] for start in range(0, len(targets), step)]
        return np.concatenate([errors_of(penalties, part) for part in parts], axis=1)

    def errors_of(penalties: Array, targets: Indices) -> Array:
        of_folds = [
            weight * test.targets_at(targets).errors(spectrum.in_basis(penalties[:, None], targets))
            for weight, test, spectrum in zip(data.weight, held_out, spectra, strict=True)
        ]
        return np.asarray(np.sum(of_folds, axis=0))

    return errors


def search_by_target(errors: ErrorsByTarget, s2: Array, limit: float, n_targets: int) -> Array:
    """The penalty of least error of each target, (q,), compared as in :func:`search`."""
    grid = coarse_grid(s2, limit)
    best = least_by_target(errors(grid, np.arange(n_targets)))
    chosen = np.empty(n_targets)
    for position in np.unique(best).tolist():
        targets = np.flatnonzero(best == position)
        fine = fine_grid(grid, position)
        chosen[targets] = fine[least_by_target(errors(fine, targets))]
    return chosen


def expected_sizes_of(train: Standardised, penalties: Array) -> Array:
    """Degrees of freedom of ridge regression with penalties in units of the columns."""
    return expected_sizes(spectrum(train), penalties * len(train.squares))


def spectrum(train: Standardised) -> Array:
    """Squared singular values of standardised rows in falling order; estimated where products of the rows
    are not affordable.
    """
    if train.few_rows:
        return squared_singular_values(train)
    M = NormalEquations.of(train, np.ones(len(train.squares))).M
    if not isinstance(M, ImplicitProducts):
        return squared_singular_values(train)
    s2 = M.spectrum()
    return s2[_above_rounding(s2[::-1])[::-1]]


def search(errors: ErrorsOf, s2: Array, limit: float) -> PenaltyPath:
    """Compare a coarse grid of penalties over twelve decades, then a fine grid between the
    neighbours of its best.

    Degrees of freedom are at most `limit`. The largest of tied penalties is the best.
    """
    if not len(s2):
        raise ValueError(
            "every column of X is constant, so there is no size of members to choose. Check the"
            " columns."
        )
    grid = coarse_grid(s2, limit)
    coarse = errors(grid)
    fine_penalties = fine_grid(grid, first_least(coarse.mse))
    fine = errors(fine_penalties)
    chosen = fine_penalties[first_least(fine.mse)]
    penalties, first = np.unique(np.r_[fine_penalties, grid], return_index=True)
    mse = np.r_[fine.mse, coarse.mse][first]
    standard_error = np.r_[fine.standard_error, coarse.standard_error][first]
    return path_of(s2, penalties, Errors(mse, standard_error), chosen)


def coarse_grid(s2: Array, limit: float) -> Array:
    """Falling penalties over twelve decades, of at most `limit` degrees of freedom."""
    smallest = smallest_penalty(s2, limit)
    grid = np.geomspace(s2[0] * SMALLEST_PENALTY, s2[0] * LARGEST_PENALTY, COARSE_PENALTIES)
    sizes = expected_sizes(s2, grid)
    allowed = grid[(sizes <= limit) & (sizes > SMALLEST_SIZE)]
    grid = allowed if sizes[0] <= limit else np.r_[smallest, allowed]
    if not len(grid):
        grid = s2[:1]
    return np.asarray(grid[::-1])


def fine_grid(grid: Array, best: int) -> Array:
    """Falling penalties between the neighbours of the best one of a coarse grid."""
    penalties = np.geomspace(
        grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], FINE_PENALTIES
    )
    # the middle of the fine grid is the best coarse penalty up to rounding, and is counted once
    penalties[np.isclose(penalties, grid[best], rtol=TIE_TOL, atol=0.0)] = grid[best]
    return np.asarray(penalties)


def smallest_penalty(s2: Array, limit: float) -> float:
    """The smallest penalty that is tried: of at most `limit` degrees of freedom, and far above
    rounding.
    """
    if not len(s2):
        return 0.0
    if limit == 0:  # no column varies in some fold, where every penalty predicts the mean
        return float(s2[0]) * LARGEST_PENALTY
    smallest = float(s2[0]) * SMALLEST_PENALTY
    degrees = expected_sizes(s2, np.array([smallest]))[0]
    return smallest if degrees <= limit else float(penalty_of_size(s2, limit))


def compare(errors: ErrorsOf, s2: Array, sizes: Array) -> PenaltyPath:
    """Compare the penalties of a list of expected sizes."""
    penalties = np.array([penalty_of_size(s2, size) for size in sizes])
    compared = errors(penalties)
    largest_first = np.argsort(-penalties)
    best = largest_first[first_least(compared.mse[largest_first])]
    return path_of(s2, penalties, compared, penalties[best])


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


def eigenvalues(train: Standardised) -> tuple[Array, Array]:
    """Eigenvalues of the products above rounding in falling order, and their eigenvectors."""
    s2, E = train.eigen
    keep = _above_rounding(s2)
    return s2[keep][::-1], E[:, keep][:, ::-1]


def squared_singular_values(train: Standardised) -> Array:
    """Eigenvalues of the products above rounding in falling order, without the eigenvectors, which
    cost most.
    """
    if train.on_device is not None:
        s2 = train.on_device.eigenvalues()
    else:
        s2 = np.linalg.eigvalsh(train.products).astype(np.float64, copy=False)
    return np.asarray(s2[_above_rounding(s2)][::-1])


def _above_rounding(s2: Array) -> NDArray[np.bool_]:
    """Eigenvalues, in rising order, that are more than rounding of the largest."""
    rounding = max(1e-13, 8 * EPS * len(s2))  # of the largest eigenvalue
    return s2 > s2[-1] * rounding if len(s2) and s2[-1] > 0 else np.zeros(len(s2), dtype=bool)
