r"""Penalised least squares: the mean of all determinantal members, and the lasso to find their
columns.

With prior variances d of the columns, :math:`\min_b \|B - A b\|^2 + \lambda \sum_j b_j^2 / d_j` is
the mean of all determinantal members with the same prior variances, which take column j with
probability
:math:`\alpha_j = d_j\, a_j' (A D A' + \lambda)^{-1} a_j`, its degrees of freedom (status: theorem, see
``subsets.Determinantal``); no member itself is penalised.

- :math:`d_j = 1`: ridge regression;
- :math:`d_j = |b_j|^q` from coefficients b of an earlier fit: one step of reweighting;
- :math:`d_j = |b_j|` from the lasso's own coefficients, with the lasso's penalty: the lasso, a
  fixed point of that step (status: exact).

It is solved by normal equations in the columns or, where columns are more, in the rows:

.. math:: (D^{1/2} A'A D^{1/2} + \lambda) x = D^{1/2} A'B , \quad b = D^{1/2} x , \qquad
          (A D A' + \lambda) x = B , \quad b = D A' x .

Penalties for standardised columns are in units of :math:`\sum_j d_j \|a_j\|^2 / w` (w: the weight of
all rows), in which the best one is the ratio of noise to signal, however many rows there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._data.arrangement import TIE_TOL
from .._data.device_products import DeviceProducts
from .._data.implicit import ImplicitRows
from .._data.moments import Moments
from .._data.rows import RowData
from .._data.standardised import AnyRows, Standardised
from .._execution.arrays import row_products
from .._execution.threads import Threads
from .._kernel import wrappers as kernels
from .._trust import require_finite
from ..subsets import Subsets
from . import gram
from .cholesky import JITTER
from .implicit_products import ImplicitProducts
from .lanczos import RESIDUAL_TOL, Krylov, solve_together
from .mean import Members
from .screened_lasso import screened_lasso_path
from .solution import Solution

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# fraction of the squared fit of the best column, by which a sweep changes the fit at most: coefficients only
# show where the signal lies. The kernel ends after 100 sweeps; `lasso.h` has the duality gaps
LASSO_TOL = 1e-7
# number of penalties from which on one eigendecomposition is cheaper than a factor per penalty
MIN_SPECTRAL_PENALTIES = 20
# up to which the compiled kernel solves for all penalties, several times as fast as LAPACK at 100 columns
MAX_KERNEL_COLUMNS = 1000
# of the columns with prior variances below one, to update known products
MAX_REDUCED_FRACTION = 0.75
# steps up to which several penalties of one target are solved in one Krylov space: 200 products with M
# take the time of a third of a Cholesky factor at 1600 columns
MAX_LANCZOS_STEPS = 200
USUAL_LANCZOS_STEPS = 150
MIN_BATCHED_TARGETS = 8  # targets from which on all are solved in Krylov spaces that grow together
MAX_KRYLOV_NUMBERS = 1 << 24  # of the vectors of targets that are solved together
# columns up to which their products are computed where products of the rows are not affordable
MAX_GATHERED_COLUMNS = 3000


def limit_members(coef: Array, mean_x: Array, mean_y: Array) -> Members:
    """Infinitely many members, of which only the mean coefficients are known."""
    require_finite(coef)
    no_sizes = np.empty(0, dtype=np.int64)
    return Members(
        coef, mean_y - mean_x @ coef, mean_y, no_sizes, np.empty(0), solver="limit", n_fallbacks=0
    )


# Normal equations


@dataclass(frozen=True)
class NormalEquations:
    """Normal equations (M + penalty) x = right in the columns with a positive prior variance, or in
    the rows if there are fewer.
    """

    M: SymmetricMatrix  # D^1/2 A'A D^1/2, or A D A'
    right: Array  # D^1/2 A'B, or B
    prior_variances: Array  # (p,)
    columns: Indices  # columns with a positive prior variance
    root: Array  # square roots of the positive prior variances
    rows: AnyRows | None = None  # A, if the equations are those of the rows

    @classmethod
    def of(cls, train: Standardised, prior_variances: Array) -> NormalEquations:
        """Build the equations of standardised training rows, or of their moments."""
        rows = train.rows
        if rows is not None:
            return cls.from_rows(rows, prior_variances)
        if train.on_device is None:
            return cls.from_gram(train.products, train.C, prior_variances)
        S = np.flatnonzero(prior_variances > 0)
        root = np.sqrt(prior_variances[S])
        M = train.on_device.scaled(S, root)
        return cls(M, root[:, None] * train.C[S], prior_variances, S, root)

    @classmethod
    def from_gram(cls, G: Array, C: Array, prior_variances: Array) -> NormalEquations:
        """Build the equations from products of the columns with each other and with the targets."""
        S = np.flatnonzero(prior_variances > 0)
        root = np.sqrt(prior_variances[S])
        M = (G if len(S) == len(G) else G[np.ix_(S, S)]) * root
        M *= root[:, None]
        return cls(M, root[:, None] * C[S], prior_variances, S, root)

    @classmethod
    def from_rows(cls, rows: AnyRows, prior_variances: Array) -> NormalEquations:
        """Build the equations from the rows; of many rows and columns, M is only known by its
        products.
        """
        S = np.flatnonzero(prior_variances > 0)
        root = np.sqrt(prior_variances[S])
        of_rows = len(S) > rows.n_rows
        M: SymmetricMatrix
        if isinstance(rows, ImplicitRows) and not rows.few_rows and len(S) > MAX_GATHERED_COLUMNS:
            M = ImplicitProducts.of(rows, S, prior_variances, of_rows=of_rows)
        elif of_rows:
            M = _weighted_products(rows, prior_variances)
        elif isinstance(rows, ImplicitRows) and not rows.few_rows:
            M = rows.products_of_columns(S) * root * root[:, None]
        else:
            Z = rows.gathered(slice(None) if len(S) == len(prior_variances) else S) * root
            return cls(row_products(Z.T), Z.T @ rows.B, prior_variances, S, root)
        if of_rows:
            return cls(M, rows.B, prior_variances, S, root, rows=rows)
        return cls(M, root[:, None] * rows.C[S], prior_variances, S, root)


def _weighted_products(rows: AnyRows, prior_variances: Array) -> Array:
    """Products A D A' of the rows, from A A' where D is one but for few columns."""
    if np.max(prior_variances) > 1:
        return rows.weighted_products(prior_variances)
    reduced = prior_variances < 1
    if not reduced.any():
        return rows.products
    if np.mean(reduced) > MAX_REDUCED_FRACTION:
        return rows.weighted_products(prior_variances)
    return np.asarray(rows.products - rows.weighted_products(1 - prior_variances))


SymmetricMatrix = Array | ImplicitProducts | DeviceProducts


def solve(equations: NormalEquations, penalties: Array, jitter: float = 0.0) -> Array:
    """Coefficients (penalties, p, q) of penalised least squares."""
    x = _solved(equations.M, equations.right, penalties, jitter)
    prior_variances = equations.prior_variances
    rows = equations.rows
    if rows is not None:  # b = D A' x
        flat = np.moveaxis(x, 1, 0).reshape(rows.n_rows, -1)
        products = rows.transposed_times(flat).reshape(-1, len(penalties), x.shape[2])
        return np.asarray(np.moveaxis(products, 1, 0) * prior_variances[:, None])
    coefs = np.zeros((len(penalties), len(prior_variances), x.shape[2]))
    coefs[:, equations.columns] = equations.root[:, None] * x
    return coefs


def degrees_of_freedom(equations: NormalEquations, penalty: float) -> Array:
    """Degrees of freedom of every column, (p,): its probability to be in a determinantal member.

    They are estimated where M is only known by its products.
    """
    M = equations.M
    prior_variances = equations.prior_variances
    probabilities = np.zeros(len(prior_variances))
    jitter = JITTER * _trace(M) / max(1, _order(M))
    rows = equations.rows
    if isinstance(M, ImplicitProducts):
        columns = (
            equations.columns if len(M.prior_variances) < len(prior_variances) else slice(None)
        )
        probabilities[columns] = M.degrees_of_freedom(penalty + jitter)
        return np.clip(probabilities, 0.0, 1.0)
    if isinstance(M, DeviceProducts):
        degrees = M.degrees_of_freedom(penalty)
        if degrees is not None:
            probabilities[equations.columns] = degrees
            return np.clip(probabilities, 0.0, 1.0)
        M = M.on_host()
    if rows is None and len(M):  # the diagonal of M (M + penalty)^-1
        # its inverse is the product of the transposed and the inverse factor; the transpose is in column order
        inverse = la.lapack.dtrtri(jittered_cholesky(M, penalty).T, lower=0)[0]
        probabilities[equations.columns] = 1 - penalty * np.einsum("jk,jk->j", inverse, inverse)
    elif rows is not None and jitter > 0:  # d_j a_j'(M + penalty)^-1 a_j
        factor = jittered_cholesky(M, penalty + jitter)
        for columns in rows.blocks():
            half = la.blas.dtrsm(1.0, factor, rows.gathered(columns), lower=1)
            probabilities[columns] = np.einsum("lj,lj->j", half, half)
        probabilities *= prior_variances
    return np.asarray(np.clip(probabilities, 0.0, 1.0))


def _order(M: SymmetricMatrix) -> int:
    return len(M) if isinstance(M, np.ndarray) else M.order


def _trace(M: SymmetricMatrix) -> float:
    return float(np.trace(M)) if isinstance(M, np.ndarray) else M.trace


def jittered_cholesky(M: Array, shift: float) -> Array:
    """Lower factor of M + shift, with the smallest jitter, relative to each diagonal entry, that
    makes it definite.
    """
    diagonal = np.diagonal(M) + shift
    diagonal = np.where(diagonal > 0, diagonal, max(float(diagonal.max(initial=0.0)), 1.0))
    jitter = 0.0
    shifted = M.copy()
    while True:
        np.einsum("ii->i", shifted)[:] = np.diagonal(M) + (shift + jitter * diagonal)
        try:
            return np.asarray(np.linalg.cholesky(shifted))  # releases the interpreter lock
        except np.linalg.LinAlgError:
            jitter = max(JITTER, 10 * jitter)


def _solved(M: SymmetricMatrix, right: Array, penalties: Array, jitter: float) -> Array:
    """Solutions (M + penalty)^-1 right, (penalties, k, q); `jitter` times the mean diagonal is
    added to penalties.
    """
    mean_diagonal = _trace(M) / max(1, _order(M))
    if not (mean_diagonal > 0 and np.any(right)):
        return np.zeros((len(penalties), *right.shape))
    shifts = penalties + jitter * mean_diagonal
    if isinstance(M, ImplicitProducts):
        return M.solved(right, shifts)
    if isinstance(M, DeviceProducts):
        solutions = M.solved(right, shifts)
        if solutions is not None:
            return solutions
        M = M.on_host()
    if len(shifts) > 1 and len(M) > MAX_KERNEL_COLUMNS and right.shape[1] == 1:
        space = Krylov.of(M.__matmul__, right[:, 0], float(shifts.min()), MAX_LANCZOS_STEPS)
        if space.residual(float(shifts.min())) <= RESIDUAL_TOL:
            return space.solutions(shifts)[:, :, None]
    if len(shifts) >= MIN_SPECTRAL_PENALTIES:
        values, E = np.linalg.eigh(M)
        denominators = np.maximum(values, 0.0)[:, None] + shifts[:, None, None]
        return np.asarray(E @ ((E.T @ right) / denominators))
    if len(M) <= MAX_KERNEL_COLUMNS:
        kernel_solutions = _solved_by_kernel(M, right, shifts)
        if kernel_solutions is not None:
            return kernel_solutions
    factors = (jittered_cholesky(M, float(shift)) for shift in shifts)
    return np.stack([la.cho_solve((factor, True), right, check_finite=False) for factor in factors])


def _solved_by_kernel(M: Array, right: Array, shifts: Array) -> Array | None:
    """Solutions (shifts, p, q) of (M + shift) x = right for a Gram matrix M, or None where a factor
    breaks down or has a pivot of rounding.
    """
    p, q = right.shape
    k = len(shifts)
    solutions = np.empty((k, p, q))
    ratios = np.empty(k)
    kernels.solve_principal(
        0,
        k,
        G=np.ascontiguousarray(M),
        C=np.ascontiguousarray(right),
        scale=np.ones(p),
        data=kernels.MemberData.none(p),
        columns=kernels.Lists.of(p * np.arange(k + 1), np.tile(np.arange(p), k)),
        shifts=np.ascontiguousarray(shifts),
        values=solutions.reshape(-1, q),
        ratios=ratios,
        probed=np.empty(k),
    )
    return solutions if np.all(ratios > 0) else None


# Standardised training rows


@dataclass(frozen=True)
class Spectrum:
    """Ridge regression of any penalty, ``basis @ (along / (values + penalty))``, for all targets."""

    values: Array  # (r,) eigenvalues of A'A, or of A A'
    basis: Array  # (p, r) eigenvectors E of A'A, or A'E
    along: Array  # (r, q) E'A'B, or E'B
    jitter: float  # added to every penalty

    @classmethod
    def of(cls, train: Standardised) -> Spectrum:
        """Decompose standardised training rows, once for all targets."""
        values, E = train.eigen
        jitter = JITTER * float(np.trace(train.products)) / max(1, len(E))
        values = np.maximum(values, 0.0)
        rows = train.rows
        if rows is None:
            return cls(values, E, E.T @ train.C, jitter)
        return cls(values, rows.transposed_times(E), E.T @ rows.B, jitter)

    def in_basis(self, penalties: Array, targets: Indices) -> Array:
        """Coefficients (r, penalties, targets) in the basis, for penalties (penalties, targets)."""
        shifts = penalties + self.jitter
        shifts = np.where(shifts > 0, shifts, 1.0)  # columns are constant
        return np.asarray(self.along[:, None, targets] / (self.values[:, None, None] + shifts))


def penalised(train: Standardised, prior_variances: Array, penalties: Array) -> Array:
    """Coefficients (penalties, p, q) of penalised least squares, for prior variances (p, q) and
    penalties (penalties, q) in units.
    """
    units = penalty_unit(train, prior_variances)
    return solve_penalised(train, prior_variances, penalties * units, JITTER)


def solve_penalised(
    train: Standardised, prior_variances: Array, penalties: Array, jitter: float
) -> Array:
    """Coefficients (penalties, p, q) of penalised least squares, for prior variances (p, q) and
    penalties (penalties, q); `jitter` as in :func:`solve`.
    """
    q = penalties.shape[1]
    coefs = np.empty((len(penalties), *prior_variances.shape))
    alone = np.ones(q, dtype=bool)
    if q >= MIN_BATCHED_TARGETS and not isinstance(train, ImplicitRows):
        if jitter == JITTER and np.all(prior_variances == 1):
            spectrum = Spectrum.of(train)
            along = spectrum.in_basis(penalties, np.arange(q))
            return np.tensordot(spectrum.basis, along, axes=1).transpose(1, 0, 2)
        alone = _few_columns(train, prior_variances, len(penalties))
        together = np.flatnonzero(~alone)
        coefs[:, :, together], solved = _solve_together(
            train.targets_at(together), prior_variances[:, together], penalties[:, together], jitter
        )
        alone[together] = ~solved
    for t in np.flatnonzero(alone).tolist():
        of_target = train if q == 1 else train.targets_at(np.array([t]))
        equations = NormalEquations.of(of_target, prior_variances[:, t])
        coefs[:, :, t] = solve(equations, penalties[:, t], jitter)[:, :, 0]
    return coefs


def _few_columns(
    train: Standardised, prior_variances: Array, n_penalties: int
) -> NDArray[np.bool_]:
    """Whether targets, (q,), have so few columns with a prior variance that factors of their Gram
    matrix cost less than a Krylov space.
    """
    p = len(prior_variances)
    product = 2.0 * p * (p if train.rows is None else 2 * train.n_rows)
    size = np.count_nonzero(prior_variances, axis=0).astype(np.float64)
    gram = 0.0 if train.rows is None else train.n_rows * size**2
    return np.asarray(gram + n_penalties * size**3 / 3 <= 3 * USUAL_LANCZOS_STEPS * product)


def _solve_together(
    train: Standardised, prior_variances: Array, penalties: Array, jitter: float
) -> tuple[Array, NDArray[np.bool_]]:
    """Coefficients (penalties, p, q) of all targets from one product with X for each step of all
    their Krylov spaces, and which targets are solved.
    """
    rows = train.rows
    A = None if rows is None else rows.gathered(slice(None))
    variances = prior_variances.T  # (q, p)
    roots = np.sqrt(variances)
    size = np.count_nonzero(variances, axis=1)  # of the systems that a single target would have
    if rows is None:
        right = train.C.T * roots
    else:
        right = np.ascontiguousarray(rows.B.T)
        size = np.minimum(size, rows.n_rows)
    traces = variances @ train.squares
    shifts = np.where(traces > 0, penalties + jitter * traces / np.maximum(size, 1), 1.0)
    step = max(1, MAX_KRYLOV_NUMBERS // (MAX_LANCZOS_STEPS * right.shape[1]))
    coefs = np.zeros((len(penalties), *prior_variances.shape))
    solved = np.zeros(len(right), dtype=bool)
    for start in range(0, len(right), step):
        part = slice(start, start + step)

        def multiply(vectors: Array, part: slice = part) -> Array:
            if A is None:
                return (vectors * roots[part]) @ train.products * roots[part]
            return ((vectors @ A) * variances[part]) @ A.T

        x, solved[part] = solve_together(multiply, right[part], shifts[:, part], MAX_LANCZOS_STEPS)
        b = x * roots[part] if A is None else (x @ A) * variances[part]
        coefs[:, :, part] = b.transpose(0, 2, 1)
    return coefs, solved


def inclusion(train: Standardised, prior_variances: Array, penalty: float) -> Array:
    """Probability of every column to be in a determinantal member, (p,), for prior variances (p,)
    and a penalty in units.
    """
    unit = float(penalty_unit(train, prior_variances))
    if train.rows is None and train.has_eigen and np.all(prior_variances == 1):
        values, E = train.eigen
        values = np.maximum(values, 0.0)
        return np.asarray(E**2 @ (values / (values + penalty * unit)))
    without_targets = train.targets_at(np.arange(0))
    return degrees_of_freedom(NormalEquations.of(without_targets, prior_variances), penalty * unit)


def penalty_unit(train: Standardised, prior_variances: Array) -> Any:
    """Unit of penalties for prior variances of one target, (p,), or of several, (p, q); see the
    module.
    """
    return (train.squares @ prior_variances) / train.weight


def group_lasso_path(train: Standardised, fractions: Array) -> Array:
    """Coefficients (penalties, p, q) of the lasso at falling fractions of the largest penalty.

    The path ends when the number of columns reaches half the number of rows. Coordinate descent
    ends when one column changes the squared fit by less than LASSO_TOL of the largest such fit.
    """
    C = train.C
    if not np.any(C):
        return np.zeros((1, *C.shape))
    # a little above the largest penalty, at which rounding would decide whether the first column
    # enters
    top = (1 + TIE_TOL) * _largest_penalty(C)
    squares = train.squares
    tol = LASSO_TOL * top**2 / max(float(squares.max(initial=0.0)), 1e-300)
    if isinstance(train, ImplicitRows):
        return screened_lasso_path(
            train, fractions * top, max_columns=float(train.n_rows / 2), tol=tol
        )
    # coordinate descent updates its gradients from moments, its residuals from rows
    rows = train.rows
    matrix = train.products if rows is None else rows.A.T
    return kernels.lasso_path(
        M=np.ascontiguousarray(matrix),
        targets=C if rows is None else rows.B,
        squares=squares,
        penalties=fractions * top,
        max_columns=float(train.n_rows / 2),
        tol=tol,
        from_rows=rows is not None,
    )


def lasso_penalty(train: Standardised, coef: Array, fraction: float) -> float:
    """The penalty, in units, that reproduces the lasso's coefficients (p, q) with prior variances
    |b_j| / max |b|.

    A'(B - A b) = l b / |b| for columns with b != 0, so that l is the penalty for prior variances
    |b|.
    """
    b = np.linalg.norm(coef, axis=1)
    return fraction * _largest_penalty(train.C) / float(penalty_unit(train, b)) if b.any() else 0.0


def _largest_penalty(C: Array) -> float:
    """The lasso penalty at which all coefficients become zero, from products (p, q) of columns and
    targets.
    """
    return float(np.linalg.norm(C, axis=1).max(initial=0.0))


def members(train: Standardised, columns: Indices, penalty: float) -> Array:
    """Coefficients (k, p, q) of uniform members on sets of sorted columns (k, m), see `solve_members`."""
    k, m = columns.shape
    p = len(train.squares)
    features = Subsets(p, m * np.arange(k + 1), columns.ravel())
    values = solve_members(train, features, penalty, Threads())
    coefs = np.zeros((k, p, values.shape[1]))
    np.put_along_axis(coefs, columns[:, :, None], values.reshape(k, m, -1), axis=1)
    return coefs


def solve_members(
    train: Standardised, features: Subsets, penalty: float, threads: Threads
) -> Array:
    """Coefficients (entries, q) of least squares on subsets of the columns, for all targets.

    The penalty of every column is a fraction of its squared norm. Constant columns have coefficient
    zero. Few or small members of rows have a Gram matrix each, others share that of all columns.
    """
    rows = train.rows
    if isinstance(rows, ImplicitRows):
        return _solve_members_of_implicit_rows(rows, features, penalty, threads)
    n_columns = len(train.squares)
    if rows is None:
        G = train.products.copy()
    elif n_columns > 2 * rows.n_rows or np.sum(features.sizes**2) < n_columns**2:
        problem = RowData(rows.A, rows.B, None, fit_intercept=False)
        return gram.from_submatrices(problem, features, None, threads, penalty=penalty).values
    else:
        G = rows.column_products.copy()
    p, q = train.C.shape
    np.einsum("ii->i", G)[:] *= 1 + penalty
    moments = Moments(
        n_rows=train.n_rows,
        weight=train.weight,
        mean_x=np.zeros(p),
        mean_y=np.zeros(q),
        G=G,
        C=train.C,
        yy=np.zeros(q),
        centred=False,
    )
    return gram.from_moments(moments, features, threads).values


def _solve_members_of_implicit_rows(
    rows: ImplicitRows, features: Subsets, penalty: float, threads: Threads
) -> Array:
    """Solve members from products of their columns, a member at a time."""

    def solve_one(i: int) -> tuple[Array, Array, bool]:
        columns = features[i]
        G = rows.products_of_columns(columns)
        np.einsum("ii->i", G)[:] *= 1 + penalty
        right = rows.C[columns]
        factor = jittered_cholesky(G, 0.0)
        coef = la.cho_solve((factor, True), right, check_finite=False)
        return coef, np.zeros(right.shape[1]), False

    n_targets = rows.B.shape[1]
    return Solution.member_by_member(solve_one, features.sizes, n_targets, "gram", threads).values
