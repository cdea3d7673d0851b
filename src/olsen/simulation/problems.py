r"""Problems with a known answer: rows of known covariance, with known coefficients and noise.

.. math:: y = X\beta + \sigma z, \qquad X = Z R^\top, \qquad R R^\top = \Sigma

The rows of `Z` have mean zero and uncorrelated entries of variance one, Gaussian or not, so the
theory, which knows only covariances, can be tried on rows that it was not derived for. The risk of
coefficients `b` is :math:`(b-\beta)^\top\Sigma(b-\beta)`, which has no noise and needs no test set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import (
    Interval,
    StrOptions,
    validate_parameter_constraints,
)

from .._data.rows import RowData
from .._execution.caching import cached_property

Floats: TypeAlias = NDArray[Any]
Shape: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Sample:
    """A data set with its true coefficients, noise and covariance."""

    X: NDArray[np.float64]  # (n, p)
    beta: NDArray[np.float64]  # (p,)
    noise: NDArray[np.float64]  # (n,)
    covariance: NDArray[np.float64] | None  # (p, p); None: identity

    @property
    def signal(self) -> NDArray[np.float64]:
        """The target without noise."""
        return self.X @ self.beta

    @property
    def y(self) -> NDArray[np.float64]:
        """The target."""
        return self.signal + self.noise

    @cached_property
    def training(self) -> RowData:
        """The rows with two targets, the signal and the noise; methods share its moments."""
        return RowData(self.X, np.column_stack([self.signal, self.noise]), None, False)

    def energy(self, error: NDArray[np.float64]) -> NDArray[np.float64]:
        """e' Sigma e for errors along the last axis."""
        weighted = error if self.covariance is None else error @ self.covariance
        return np.asarray(np.sum(weighted * error, axis=-1))


def _gaussian(rng: np.random.Generator, shape: Shape, _: float) -> Floats:
    return rng.standard_normal(shape)


def _rademacher(rng: np.random.Generator, shape: Shape, _: float) -> Floats:
    return 2.0 * rng.integers(0, 2, shape) - 1.0


def _student(rng: np.random.Generator, shape: Shape, degrees: float) -> Floats:
    return np.asarray(np.sqrt((degrees - 2) / degrees) * rng.standard_t(degrees, shape))


def _elliptical(rng: np.random.Generator, shape: Shape, degrees: float) -> Floats:
    """Gaussian rows, each times one random length: a multivariate t distribution."""
    scale = np.sqrt((degrees - 2) / rng.chisquare(degrees, (shape[0], 1)))
    return np.asarray(scale * rng.standard_normal(shape))


def _sparse(rng: np.random.Generator, shape: Shape, probability: float) -> Floats:
    """Columns that are one with this probability and zero otherwise, standardised."""
    is_one = rng.random(shape) < probability
    return np.asarray((is_one - probability) / np.sqrt(probability * (1 - probability)))


def _one_hot(rng: np.random.Generator, shape: Shape, levels: float) -> Floats:
    """Indicators of all levels but the last of each factor, standardised."""
    factor, level = np.divmod(np.arange(shape[1]), int(levels) - 1)
    drawn = rng.integers(0, int(levels), (shape[0], factor[-1] + 1))
    is_level = drawn[:, factor] == level
    return np.asarray((is_level - 1 / levels) * levels / np.sqrt(levels - 1))


class Rows(NamedTuple):
    """A distribution of rows with uncorrelated entries of variance one."""

    draw: Callable[[np.random.Generator, Shape, float], Floats]
    parameter: float = 0.0  # default
    allowed: Interval = Interval(Real, None, None, closed="neither")


MORE_THAN_TWO = Interval(Real, 2, None, closed="neither")  # the variance exists
ROWS: Mapping[str, Rows] = MappingProxyType(
    {
        "gaussian": Rows(_gaussian),
        "rademacher": Rows(_rademacher),
        "student": Rows(_student, 5.0, MORE_THAN_TWO),
        "elliptical": Rows(_elliptical, 5.0, MORE_THAN_TWO),
        "one-hot": Rows(_one_hot, 4.0, Interval(Integral, 2, None, closed="left")),
        "sparse": Rows(_sparse, 0.1, Interval(Real, 0, 1, closed="neither")),
    }
)
COVARIANCES = {  # default strength
    "identity": 0.0,
    "diagonal": 0.01,
    "ar1": 0.7,
    "equicorrelated": 0.5,
    "block": 0.7,
    "spiked": 10.0,
    "power-law": 1.0,
}
COEFFICIENTS = ("gaussian", "fixed", "sparse", "aligned", "misaligned")


@dataclass(frozen=True)
class LinearProblem:
    r"""A linear model to draw data from: equation (1) of the paper, for several distributions of rows.

    Parameters
    ----------
    n, p : int
        Rows and columns.
    sigma : float, default=1.0
        Standard deviation of the noise.
    covariance : str or array of shape (p, p), default="identity"
        Covariance :math:`\Sigma` of a row, or one of

        - "identity";
        - "diagonal", variances in equal ratios from 1 down to `strength`;
        - "power-law", variances :math:`j^{-\text{strength}}` for j = 1, ..., p;
        - "ar1", correlation :math:`\text{strength}^{|i-j|}`;
        - "equicorrelated", correlation `strength` of every two columns;
        - "block", correlation `strength` within blocks of about :math:`\sqrt p` columns;
        - "spiked", variance `strength` along the direction of `fixed_beta` and one across.
    strength : float, default=None
        Parameter of a named covariance. None: 0.01, 1, 0.7, 0.5, 0.7 and 10, in the order above.
    coefficients : str or array of shape (p,), default="gaussian"
        The coefficients, or one of

        - "gaussian", a new random direction g in every draw;
        - "fixed", entries of equal size and fixed signs, equal in all draws;
        - "sparse", `nonzeros` Gaussian entries at random positions;
        - "aligned" and "misaligned", the directions of :math:`\Sigma g` and
          :math:`\Sigma^{-1} g`: mostly along eigenvectors of large or of small variance.

        Named ones are of norm one.
    nonzeros : int, default=None
        Entries that are not zero, for sparse coefficients. None: a tenth of the columns.
    noise : {"gaussian", "student"}, default="gaussian"
        Distribution of the noise; Student's is scaled to the same standard deviation.
    degrees : float, default=5.0
        Degrees of freedom of Student's distribution of the noise, above 2.
    rows : str, default="gaussian"
        Distribution of the rows, before they are given their covariance: independent "gaussian",
        "rademacher" (signs) or "student" entries; "elliptical", Gaussian rows that each have a
        random length (multivariate t); "one-hot", the indicators of all levels but the last of
        categorical factors, standardised (the correlation :math:`-1/(\text{levels}-1)` within a
        factor is part of `covariance_matrix`); "sparse", standardised columns of zeros and few
        ones.
    row_parameter : float, default=None
        Degrees of freedom of "student" and "elliptical" (default 5), levels of a factor (4), or
        probability of a one in a sparse column (0.1).

    Examples
    --------
    >>> from olsen.simulation import LinearProblem
    >>> sample = LinearProblem(20, 8, sigma=0.5, covariance="ar1").draw(rng=0)
    >>> sample.X.shape, round(float(np.sum(sample.beta**2)), 12)
    ((20, 8), 1.0)
    >>> LinearProblem(
    ...     20, 2, covariance=[[2.0, 1.0], [1.0, 2.0]], rows="rademacher"
    ... ).covariance_matrix()
    array([[2., 1.],
           [1., 2.]])
    """

    n: int
    p: int
    sigma: float = 1.0
    covariance: Any = "identity"
    strength: float | None = None
    coefficients: Any = "gaussian"
    nonzeros: int | None = None
    noise: str = "gaussian"
    degrees: float = 5.0
    rows: str = "gaussian"
    row_parameter: float | None = None

    def __post_init__(self) -> None:
        for name, shape in (("covariance", (self.p, self.p)), ("coefficients", (self.p,))):
            if not isinstance(getattr(self, name), str):
                entries = _entries(name, getattr(self, name), shape)
                object.__setattr__(self, name, entries)  # hashable, as problems are keys
        count = Interval(Integral, 1, None, closed="left")
        constraints = {
            "n": [count],
            "p": [count],
            "sigma": [Interval(Real, 0, None, closed="left")],
            "covariance": [StrOptions(set(COVARIANCES)), tuple],
            "coefficients": [StrOptions(set(COEFFICIENTS)), tuple],
            "nonzeros": [count, None],
            "noise": [StrOptions({"gaussian", "student"})],
            "degrees": [MORE_THAN_TWO],
            "rows": [StrOptions(set(ROWS))],
        }
        validate_parameter_constraints(constraints, vars(self), "LinearProblem")
        parameter = {"row_parameter": [ROWS[self.rows].allowed, None]}
        validate_parameter_constraints(parameter, vars(self), "LinearProblem")
        if self.nonzeros is not None and self.nonzeros > self.p:
            raise ValueError(f"nonzeros={self.nonzeros} exceeds the {self.p} columns.")
        if self.covariance != "identity":
            _root(self.covariance, self._strength, self.p)  # raises where there is none

    def covariance_matrix(self) -> NDArray[np.float64]:
        """The covariance of a row, of shape (p, p)."""
        if self.rows != "one-hot":
            return _covariance(self.covariance, self._strength, self.p)
        factor = np.arange(self.p) // (int(self._row_parameter) - 1)
        within_factor = np.equal.outer(factor, factor) / (1 - self._row_parameter)
        np.fill_diagonal(within_factor, 1.0)
        root = _root(self.covariance, self._strength, self.p)
        return np.asarray(root @ within_factor @ root.T)

    def fixed_beta(self) -> NDArray[np.float64]:
        """The coefficients of ``coefficients="fixed"``: entries of equal size with fixed
        pseudorandom signs.
        """
        return _fixed_direction(self.p)

    def draw(self, rng: np.random.Generator | int | None) -> Sample:
        """Draw data, coefficients and noise, in this order.

        Parameters
        ----------
        rng : numpy Generator, int or None
            Generator, or seed of one.

        Returns
        -------
        Sample
            With the arrays ``X``, ``y``, ``beta``, ``signal`` and ``noise``.
        """
        rng = np.random.default_rng(rng)
        X: Floats = ROWS[self.rows].draw(rng, (self.n, self.p), self._row_parameter)
        if self.covariance != "identity":
            X = X @ _root(self.covariance, self._strength, self.p).T
        has_covariance = self.covariance != "identity" or self.rows == "one-hot"
        covariance = self.covariance_matrix() if has_covariance else None
        beta = self.draw_coefficients(rng)
        if self.noise == "gaussian":
            noise = rng.standard_normal(self.n)
        else:
            noise = np.sqrt((self.degrees - 2) / self.degrees) * rng.standard_t(
                self.degrees, self.n
            )
        return Sample(X, beta, self.sigma * noise, covariance)

    @property
    def _strength(self) -> float:
        if self.strength is None and isinstance(self.covariance, str):
            return COVARIANCES[self.covariance]
        return self.strength or 0.0

    @property
    def _row_parameter(self) -> float:
        parameter = self.row_parameter
        return ROWS[self.rows].parameter if parameter is None else parameter

    def draw_coefficients(self, rng: np.random.Generator | int | None) -> NDArray[np.float64]:
        """Draw coefficients alone; `rng` as in `draw`."""
        rng = np.random.default_rng(rng)
        if not isinstance(self.coefficients, str):
            return np.array(self.coefficients)
        if self.coefficients == "fixed":
            return self.fixed_beta()
        beta: Floats = rng.standard_normal(self.p)
        if self.coefficients == "sparse":
            nonzeros = max(1, self.p // 10) if self.nonzeros is None else self.nonzeros
            beta[rng.permutation(self.p)[: self.p - nonzeros]] = 0.0
        elif self.coefficients == "aligned":
            beta = self.covariance_matrix() @ beta
        elif self.coefficients == "misaligned":
            beta = np.linalg.solve(self.covariance_matrix(), beta)
        return np.asarray(beta / np.linalg.norm(beta))


def _entries(name: str, values: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A vector or matrix as (nested) tuples of numbers."""
    array = np.asarray(values, dtype=float)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be a name or finite numbers of shape {shape}; got shape {array.shape}."
        )
    return tuple(array.tolist() if array.ndim == 1 else map(tuple, array.tolist()))


def _fixed_direction(p: int) -> Floats:
    signs = np.random.Generator(np.random.Philox(p)).choice([-1.0, 1.0], size=p)
    return np.asarray(signs / np.sqrt(p))


@lru_cache(maxsize=32)
def _covariance(kind: Any, strength: float, p: int) -> Floats:
    """A named covariance, or the given one; cached, because every trial asks for it."""
    column = np.arange(p)
    if kind == "identity":
        matrix = np.eye(p)
    elif kind == "ar1":
        matrix = strength ** np.abs(np.subtract.outer(column, column))
    elif kind == "diagonal":
        matrix = np.diag(np.geomspace(1.0, strength, p))
    elif kind == "power-law":
        matrix = np.diag((column + 1.0) ** -strength)
    elif kind == "equicorrelated":
        matrix = strength + (1 - strength) * np.eye(p)
    elif kind == "block":
        block = column // round(np.sqrt(p))
        matrix = strength * np.equal.outer(block, block) + (1 - strength) * np.eye(p)
    elif kind == "spiked":
        direction = _fixed_direction(p)
        matrix = np.eye(p) + (strength - 1) * np.outer(direction, direction)
    else:
        matrix = np.array(kind)
    matrix.flags.writeable = False  # the cached array is shared between problems
    return np.asarray(matrix)


@lru_cache(maxsize=32)
def _root(kind: Any, strength: float, p: int) -> Floats:
    """The Cholesky factor of a covariance."""
    covariance = _covariance(kind, strength, p)
    eigenvalues = np.full(1, np.nan)
    if np.isfinite(covariance).all() and np.array_equal(covariance, covariance.T):
        eigenvalues = np.linalg.eigvalsh(covariance)
    if not eigenvalues[0] > p * np.finfo(float).eps * eigenvalues[-1]:
        name = f"{kind!r}, strength={strength:g}" if isinstance(kind, str) else "given"
        raise ValueError(
            f"the covariance ({name}) of {p} columns must be symmetric and positive definite;"
            f" its smallest eigenvalue is {eigenvalues[0]:.3g}."
        )
    return np.linalg.cholesky(covariance)
