r"""Leverage of rows: how far they are from the training rows, as the members of an ensemble see it.

The leverage of a row in a member on the columns S is :math:`x_S' G_{SS}^{-1} x_S`, with x and G
centred if an intercept is fitted. For determinantal members with prior variances D and penalty
:math:`\lambda` its mean is

.. math:: h(x) = x' (G + \lambda D^{-1})^{-1} x

(theorem if no drawable columns are dependent; the limit of nearly dependent columns otherwise). A
mixture has the weighted mean over its schemes. Uniform members and coin flips have the penalty on
standardised columns with as many degrees of freedom as they have columns
(``equivalence.determinantal_penalty``; prior variances are proportional to inclusion
probabilities): status heuristic.

Two bounds keep the penalty away from zero, where every new row of a wide table would be far: degrees
of freedom are at most MAX_DEGREES_PER_ROW of the rows, and a penalty is at least MIN_PENALTY of the
mean square of the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._data.fits import NeedsRows
from .._data.moments import Moments, constant_columns
from .._data.rows import RowData
from .._data.stored import product
from .._data.training import TrainingData
from .._execution import memory
from .._trust import EPS
from ..subsets import Design, penalty_of_size
from .chunks import dense_chunks

Array = NDArray[np.float64]

MAX_DEGREES_PER_ROW = 1 / 3  # degrees of freedom of the penalised fits for each training row
MIN_PENALTY = 1e-6  # of the mean sum of squares of the columns, times their prior variances


class _Scheme(NamedTuple):
    """A sampling scheme: its weight, prior variances (p,), and its penalty or its expected size."""

    weight: float
    prior_variances: Array
    penalty: float | None
    size: float


@dataclass(frozen=True)
class Leverage:
    """Leverages as squared lengths of centred rows, times a root of the quadratic form.

    A root keeps twice the digits of the form itself: columns may be nearly dependent.
    """

    mean_x: Array  # (p,)
    root: Array  # (r, p), of the weighted mean of (G + penalty / prior variances)^-1
    largest: float = 1.0  # leverage of the training rows

    @property
    def without_rows(self) -> Leverage:
        """The form itself, which needs no training rows."""
        return self

    @classmethod
    def from_moments(cls, moments: Moments, designs: Sequence[Design]) -> Leverage:
        """Build from products of the columns."""
        squares = np.diagonal(moments.G)
        varies = ~constant_columns(squares, moments.mean_x, moments.weight)
        roots = []
        for scheme in _schemes(designs, np.where(varies, squares, 0.0)):
            S = np.flatnonzero(scheme.prior_variances > 0)
            units = np.sqrt(scheme.prior_variances[S])
            scaled = moments.G[np.ix_(S, S)] * units * units[:, None]
            root = np.zeros((len(S), len(squares)))
            root[:, S] = np.sqrt(scheme.weight) * _inverse_factor(scaled, scheme, moments.n_rows)
            root[:, S] *= units
            roots.append(root)
        if not roots:
            return cls(moments.mean_x, np.zeros((0, len(squares))))
        return cls(moments.mean_x, roots[0] if len(roots) == 1 else _joined(roots))

    def absolute(self, X: Any) -> Array:
        """Leverages (rows,) of checked rows, dense or sparse, in units of one."""
        leverage = np.empty(X.shape[0])
        for chunk, rows in dense_chunks(X, 16.0 * len(self.mean_x)):
            along = (rows - self.mean_x) @ self.root.T
            leverage[chunk] = np.einsum("ij,ij->i", along, along)
        return leverage


class _Kernel(NamedTuple):
    """Eigenvectors of A D A' for one scheme, by which centred rows are split into a part that training
    rows span, and the rest.
    """

    weight: float
    prior_variances: Array  # (p,)
    penalty: float
    values: Array  # (r,) eigenvalues above rounding
    directions: Array  # (r, n) eigenvectors over the roots of their eigenvalues


@dataclass(frozen=True)
class RowLeverage:
    r"""Leverages from the training rows themselves, for more columns than rows.

    With :math:`A D A' = U V U'` and the coordinates :math:`c = V^{-1/2} U' A D x` of a row in the
    span of the training rows,

    .. math:: x' (A'A + \lambda D^{-1})^{-1} x = \sum_k \frac{c_k^2}{v_k + \lambda}
              + \frac{x'Dx - \sum_k c_k^2}{\lambda}.
    """

    rows: RowData
    mean_x: Array  # (p,)
    kernels: list[_Kernel]
    largest: float = 1.0  # leverage of the training rows

    without_rows = None

    @classmethod
    def from_rows(cls, rows: RowData, designs: Sequence[Design]) -> RowLeverage:
        """Build from rows on the host; sparse rows stay sparse."""
        mean_x, _ = rows.means
        form = cls(rows, mean_x, [])
        squares = np.zeros(rows.n_columns)
        for chunk, block in dense_chunks(rows.X, 16.0 * rows.n_columns):
            squares += rows.weights[chunk] @ (block - mean_x) ** 2
        squares[constant_columns(squares, mean_x, rows.total_weight)] = 0.0
        kernels = []
        for scheme in _schemes(designs, squares):
            root = np.sqrt(rows.weights)
            products = np.empty((len(root), len(root)))
            for chunk, block in dense_chunks(rows.X, 16.0 * rows.n_columns):
                centred = (block - mean_x) * root[chunk, None]
                products[:, chunk] = form._products(centred, scheme.prior_variances)
            kernels.append(_kernel(products, scheme))
        return cls(rows, mean_x, kernels)

    def absolute(self, X: Any) -> Array:
        """Leverages (rows,) of checked rows, dense or sparse, in units of one."""
        leverage = np.zeros(X.shape[0])
        for chunk, rows in dense_chunks(X, 16.0 * sum(self.rows.shape)):
            deviations = rows - self.mean_x
            for kernel in self.kernels:
                products = self._products(deviations, kernel.prior_variances)
                squares = (kernel.directions @ products) ** 2
                spanned = np.sum(squares / (kernel.values + kernel.penalty)[:, None], axis=0)
                rest = deviations**2 @ kernel.prior_variances - squares.sum(axis=0)
                leverage[chunk] += kernel.weight * (
                    spanned + np.maximum(rest, 0.0) / kernel.penalty
                )
        return leverage

    def _products(self, centred: Array, prior_variances: Array) -> Array:
        """Products (n, m) of the sqrt-weighted, centred training rows with centred rows (m, p)."""
        right = prior_variances[:, None] * centred.T
        products = product(self.rows.X, right, None) - self.mean_x @ right
        return np.asarray(np.sqrt(self.rows.weights)[:, None] * products)


AnyLeverage = Leverage | RowLeverage


def widening(leverage: AnyLeverage, X: Any) -> Array:
    """Factors (rows,) on the residuals in intervals of rows that are beyond the training rows.

    The error of a prediction has a variance proportional to 1 + h. The training row that is
    farthest has h / (1 - h) when it is held out; from one on it is beyond all others.
    """
    largest = leverage.largest
    reference = min(1.0, largest / (1 - largest)) if largest < 1 else 1.0
    return np.sqrt(np.maximum(1.0, (1 + leverage.absolute(X)) / (1 + reference)))


def leverage_of(data: TrainingData, designs: Sequence[Design]) -> AnyLeverage:
    """Leverage from training data, from the rows where columns are more; may read the data twice."""
    n = designs[0].n_rows
    p = designs[0].n_columns
    memory.require(
        40.0 * min(n, p) ** 2,
        f"leverage from products of {min(n, p)} rows or columns",
        "Fit fewer of them.",
    )
    rows = data.host_rows
    form: AnyLeverage
    if rows is not None and p > n:
        form = RowLeverage.from_rows(rows, designs)
    else:
        moments = data.total_moments()
        if moments.n_rows != n:
            raise NeedsRows(
                f"leverage reads the training data again: {n} rows in the fit, {moments.n_rows}"
                " rows now. Fit again."
            )
        form = Leverage.from_moments(moments, designs)
    return replace(form, largest=data.largest(form.absolute))


def _schemes(designs: Sequence[Design], squares: Array) -> list[_Scheme]:
    """Schemes of all targets, with weights that sum to one; `squares` (p,) are those of the centred
    columns.
    """
    varies = squares > 0
    per_square = np.divide(1.0, squares, out=np.zeros(len(squares)), where=varies)
    schemes = []
    for design in designs:
        weight = 1 / len(designs)
        if design.prior_variances is not None and design.penalties is not None:
            weights = design.scheme_weights
            weights = np.ones(len(design.penalties)) if weights is None else weights
            for share, prior_variances, penalty in zip(
                weights, design.prior_variances, design.penalties, strict=False
            ):
                schemes.append(
                    _Scheme(weight * float(share), prior_variances * varies, float(penalty), np.inf)
                )
            if design.scheme_weights is None:
                continue
            if design.scheme_weights.any():  # the mean target has the leverages of uniform members
                weight *= design.uniform_weight
        probabilities = design.max_features if np.ndim(design.max_features) else 1.0
        schemes.append(_Scheme(weight, probabilities * per_square, None, design.expected_size))
    return [scheme for scheme in schemes if scheme.weight > 0 and scheme.prior_variances.any()]


def _kernel(products: Array, scheme: _Scheme) -> _Kernel:
    """Eigenvectors of the products (n, n) of training rows, and the penalty of a scheme."""
    values, vectors = la.eigh(products)
    above_rounding = values > EPS * len(values) * values[-1]
    values = values[above_rounding]
    smallest = _smallest_penalty(products, scheme)
    degrees = float(np.sum(values / (values + smallest)))
    size = _largest_size(scheme, len(products))
    penalty = smallest if degrees <= size else penalty_of_size(values, size)
    directions = vectors[:, above_rounding].T / np.sqrt(values)[:, None]
    return _Kernel(scheme.weight, scheme.prior_variances, penalty, values, directions)


def _inverse_factor(products: Array, scheme: _Scheme, n_rows: int) -> Array:
    """Inverse of the lower Cholesky factor of products + penalty, for the penalty of a scheme.

    Eigenvalues, which take several times as long as a factor, are computed only where the least
    penalty leaves too many degrees of freedom, or only the size of the scheme is known.
    """
    smallest = _smallest_penalty(products, scheme)
    size = _largest_size(scheme, n_rows)
    inverse = _inverse_of_factor(products, smallest)
    if len(products) - smallest * np.sum(inverse**2) <= size:
        return inverse
    values = np.maximum(la.eigvalsh(products), 0.0)
    return _inverse_of_factor(products, penalty_of_size(values[values > 0], size))


def _smallest_penalty(products: Array, scheme: _Scheme) -> float:
    """The penalty of a scheme, and at least MIN_PENALTY."""
    n_columns = np.count_nonzero(scheme.prior_variances)
    smallest = MIN_PENALTY * float(np.trace(products)) / n_columns
    return smallest if scheme.penalty is None else max(scheme.penalty, smallest)


def _largest_size(scheme: _Scheme, n_rows: int) -> float:
    """Degrees of freedom of a scheme, at most."""
    return min(scheme.size, MAX_DEGREES_PER_ROW * n_rows)


def _inverse_of_factor(products: Array, penalty: float) -> Array:
    """Inverse of the lower Cholesky factor of products + penalty."""
    factor = la.cholesky(products + penalty * np.eye(len(products)), lower=True)
    return np.asarray(la.lapack.dtrtri(factor, lower=1)[0])


def _joined(roots: list[Array]) -> Array:
    """A root of the sum of quadratic forms, from their roots."""
    return np.asarray(np.linalg.qr(np.concatenate(roots), mode="r"))
