r"""Problems with a known answer: rows of known covariance, with known coefficients and noise.

.. math:: y = X\beta + \sigma z, \qquad x_i \sim N(0, \Sigma)

The risk of coefficients `b` is :math:`(b-\beta)^\top\Sigma(b-\beta)`, which has no noise and needs
no test set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import (
    Interval,
    StrOptions,
    validate_parameter_constraints,
)

COVARIANCES = {"identity": 0.0, "diagonal": 0.01, "ar1": 0.7}  # default strength


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

    def energy(self, error: NDArray[np.float64]) -> NDArray[np.float64]:
        """e' Sigma e for errors along the last axis."""
        weighted = error if self.covariance is None else error @ self.covariance
        return np.asarray(np.sum(weighted * error, axis=-1))


@dataclass(frozen=True)
class LinearProblem:
    """A linear model to draw data from.

    Parameters
    ----------
    n, p : int
        Rows and columns.
    sigma : float, default=1.0
        Standard deviation of the noise.
    covariance : {"identity", "diagonal", "ar1"}, default="identity"
        Covariance of a row. "diagonal" has variances in equal ratios from 1 down.
    strength : float, default=None
        Parameter of the covariance: smallest variance, or correlation of neighbours. None: 0.01,
        0.7.
    coefficients : {"gaussian", "fixed", "sparse"}, default="gaussian"
        A new random direction in every draw; entries of equal size and fixed signs, equal in all
        draws; or `nonzeros` Gaussian entries at random positions. Always of norm one.
    nonzeros : int, default=None
        Entries that are not zero, for sparse coefficients. None: a tenth of the columns.
    noise : {"gaussian", "student"}, default="gaussian"
        Distribution of the noise; Student's is scaled to the same standard deviation.
    degrees : float, default=5.0
        Degrees of freedom of Student's distribution, above 2.

    Examples
    --------
    >>> from olsen.simulation import LinearProblem
    >>> sample = LinearProblem(20, 8, sigma=0.5, covariance="ar1").draw(rng=0)
    >>> sample.X.shape, round(float(np.sum(sample.beta**2)), 12)
    ((20, 8), 1.0)
    """

    n: int
    p: int
    sigma: float = 1.0
    covariance: str = "identity"
    strength: float | None = None
    coefficients: str = "gaussian"
    nonzeros: int | None = None
    noise: str = "gaussian"
    degrees: float = 5.0

    def __post_init__(self) -> None:
        count = Interval(Integral, 1, None, closed="left")
        constraints = {
            "n": [count],
            "p": [count],
            "sigma": [Interval(Real, 0, None, closed="left")],
            "covariance": [StrOptions(set(COVARIANCES))],
            "coefficients": [StrOptions({"gaussian", "fixed", "sparse"})],
            "nonzeros": [count, None],
            "noise": [StrOptions({"gaussian", "student"})],
            # with fewer degrees of freedom the noise has no variance
            "degrees": [Interval(Real, 2, None, closed="neither")],
        }
        validate_parameter_constraints(constraints, vars(self), "LinearProblem")
        if self.nonzeros is not None and self.nonzeros > self.p:
            raise ValueError(f"nonzeros={self.nonzeros} exceeds the {self.p} columns.")

    def covariance_matrix(self) -> NDArray[np.float64]:
        """The covariance of a row, of shape (p, p)."""
        return _covariance(self.covariance, self._strength, self.p)

    def fixed_beta(self) -> NDArray[np.float64]:
        """The coefficients of ``coefficients="fixed"``: entries of equal size with fixed
        pseudorandom signs.
        """
        signs = np.random.Generator(np.random.Philox(self.p)).choice([-1.0, 1.0], size=self.p)
        return np.asarray(signs / np.sqrt(self.p))

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
        X = rng.standard_normal((self.n, self.p))
        covariance = None
        if self.covariance != "identity":
            covariance = self.covariance_matrix()
            X = X @ _root(self.covariance, self._strength, self.p).T
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
        return COVARIANCES[self.covariance] if self.strength is None else self.strength

    def draw_coefficients(self, rng: np.random.Generator | int | None) -> NDArray[np.float64]:
        """Draw coefficients alone; `rng` as in `draw`."""
        rng = np.random.default_rng(rng)
        if self.coefficients == "fixed":
            return self.fixed_beta()
        beta = rng.standard_normal(self.p)
        if self.coefficients == "sparse":
            nonzeros = max(1, self.p // 10) if self.nonzeros is None else self.nonzeros
            beta[rng.permutation(self.p)[: self.p - nonzeros]] = 0.0
        return beta / np.linalg.norm(beta)


@lru_cache(maxsize=32)
def _covariance(name: str, strength: float, p: int) -> NDArray[np.float64]:
    if name == "identity":
        matrix = np.eye(p)
    elif name == "ar1":
        matrix = strength ** np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    else:  # diagonal
        matrix = np.diag(np.geomspace(1.0, strength, p))
    matrix.flags.writeable = False  # the cached array is shared between problems
    return np.asarray(matrix)


@lru_cache(maxsize=32)
def _root(name: str, strength: float, p: int) -> NDArray[np.float64]:
    return np.asarray(np.linalg.cholesky(_covariance(name, strength, p)), dtype=np.float64)
