r"""What is tried on a problem: ensembles, ridge, dropout, any estimator.

Everything linear in `y` is given the signal and the noise as two targets. Their errors add up to the error of the fit,
and their energies are its bias and its variance, trial by trial, at the price of one more right-hand side.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .. import _members, subsets
from ..equivalence import inclusion_probabilities
from .problems import Sample

__all__ = ["QUANTITIES", "Dropout", "Ensemble", "Estimator", "Ridge"]

QUANTITIES = ("risk", "bias", "variance")


@dataclass(frozen=True)
class Ensemble:
    r"""Least-squares members without intercept, averaged, at several numbers of members from one solve.

    Parameters
    ----------
    max_features : int, float or tuple, default=0.5
        Columns per member: a count, a fraction, or one probability per column.
    max_samples : int or float, default=1.0
        Rows per member.
    k : tuple of int or inf, default=(100,)
        Numbers of members, ascending: the first `k` of those drawn are averaged. With ``inf`` among them, every `k`
        is computed from all K members drawn, as :math:`R_{off} + (R_{diag} - R_{off})/k` with
        :math:`R_{diag}` the mean energy of a member's error and :math:`R_{off}` that of pairs of different members.
        Same expectation, less noise, and ``k=inf`` is :math:`R_{off}`.
    members : int, default=None
        Members to draw, K. None: the largest finite `k`, or 100 without one.
    sampling : {"fixed", "bernoulli", "determinantal"}, default="fixed"
        As in `OLSEnsembleRegressor`; determinantal members have `max_features` columns on average.
    design : {"independent", "balanced"}, default="independent"
        As in `OLSEnsembleRegressor`. ``inf`` needs independent members.
    scale : float, default=1.0
        Factor on the average.
    penalty : float, default=None
        If given, columns are drawn with the probabilities matched to this ridge penalty on the drawn data, and
        `max_features` is not used.

    Examples
    --------
    >>> from olsen.simulation import Ensemble, LinearProblem, run
    >>> (estimate,) = run([(LinearProblem(30, 20), Ensemble(5, k=(1, 10)))], trials=4, seed=0)
    >>> estimate.mean.shape  # numbers of members, then risk, bias and variance
    (2, 3)
    """

    max_features: int | float | tuple[float, ...] = 0.5
    max_samples: int | float = 1.0
    k: tuple[float, ...] = (100,)
    members: int | None = None
    sampling: str = "fixed"
    design: str = "independent"
    scale: float = 1.0
    penalty: float | None = None

    def evaluate(self, sample: Sample, seed: int) -> NDArray[np.float64]:
        """Risk, bias and variance for every k, of shape (len(k), 3)."""
        pooled = np.inf in self.k
        features, values = self._solve(sample, self.members or (100 if pooled else int(max(self.k))), seed)
        if not pooled:
            return _energies(sample, self.scale * _running_means(features, values, np.array(self.k)))
        own, pair = _pair_energies(sample, features, self.scale * values)
        return np.asarray(pair + (own - pair) / np.array(self.k)[:, None])

    def _solve(self, sample: Sample, total: int, seed: int) -> tuple[subsets.Subsets, NDArray[np.float64]]:
        n, p = sample.X.shape
        chance = self.max_features if np.ndim(self.max_features) == 0 else np.array(self.max_features)
        if self.penalty is not None:
            chance = inclusion_probabilities(sample.X, self.penalty, center=False, check_collinear=False)
        if self.sampling == "determinantal":
            size = subsets.Design(n, p, seed, chance).expected_size  # type: ignore[arg-type]
            features, rows = subsets.Determinantal.from_rows(sample.X, size).draw(0, total, seed=seed), None
        else:
            how = {"max_samples": self.max_samples, "sampling": self.sampling, "design": self.design}
            features, rows = subsets.draw_members(n, p, total, seed=seed, max_features=chance, **how)  # type: ignore[arg-type]
        problem = _members.Problem(sample.X, _two_targets(sample), None, False)
        return features, _members.solve(problem, features, rows).values


@dataclass(frozen=True)
class Ridge:
    r"""Ridge regression without intercept, :math:`(X^\top X + \lambda I)^{-1}X^\top y`.

    Parameters
    ----------
    penalty : float
        :math:`\lambda`; zero is least squares, the one of minimum norm with fewer rows than columns.
    """

    penalty: float
    k: tuple[int, ...] = field(default=(1,), init=False)

    def evaluate(self, sample: Sample, seed: int) -> NDArray[np.float64]:
        """Risk, bias and variance, of shape (1, 3)."""
        return _energies(sample, _ridge(sample.X, _two_targets(sample), self.penalty).T[:, None, :])


@dataclass(frozen=True)
class Dropout:
    r"""The solution dropout converges to, with columns kept with probability `alpha` (paper, eq. dropout).

    .. math:: \frac1\alpha\Bigl(G + \frac{1-\alpha}{\alpha}\,\mathrm{diag}\,G\Bigr)^{-1}X^\top y

    Parameters
    ----------
    alpha : float
        Probability to keep a column.
    rescale : bool, default=False
        Whether to multiply by alpha, which undoes the inflation.
    """

    alpha: float
    rescale: bool = False
    k: tuple[int, ...] = field(default=(1,), init=False)

    def evaluate(self, sample: Sample, seed: int) -> NDArray[np.float64]:
        """Risk, bias and variance, of shape (1, 3)."""
        norms = np.sqrt(np.sum(sample.X**2, axis=0))
        coef = _ridge(sample.X / norms, _two_targets(sample), (1 - self.alpha) / self.alpha) / norms[:, None]
        factor = 1.0 if self.rescale else 1 / self.alpha
        return _energies(sample, factor * coef.T[:, None, :])


@dataclass(frozen=True)
class Estimator:
    """Any estimator with `coef_`; only its risk is known, for it need not be linear in `y`.

    Parameters
    ----------
    path : str
        Where the class is, such as ``"sklearn.linear_model.RidgeCV"``.
    parameters : tuple of (name, value), default=()
        What it is made with; ``random_state`` is set for estimators that have one.

    Examples
    --------
    >>> from olsen.simulation import Estimator, LinearProblem, run
    >>> lasso = Estimator("sklearn.linear_model.LassoCV", (("fit_intercept", False),))
    >>> run([(LinearProblem(40, 10, coefficients="sparse"), lasso)], trials=2, seed=0)[0].trials
    2
    """

    path: str
    parameters: tuple[tuple[str, object], ...] = ()
    k: tuple[int, ...] = field(default=(1,), init=False)

    def evaluate(self, sample: Sample, seed: int) -> NDArray[np.float64]:
        """Risk; bias and variance are not defined."""
        module, _, name = self.path.rpartition(".")
        model = getattr(importlib.import_module(module), name)(**dict(self.parameters))
        if "random_state" in model.get_params():
            model.set_params(random_state=seed % 2**31)
        coef = np.ravel(model.fit(sample.X, sample.y).coef_)
        return np.array([[sample.energy(coef - sample.beta), np.nan, np.nan]])


Method: TypeAlias = Ensemble | Ridge | Dropout | Estimator


def _two_targets(sample: Sample) -> NDArray[np.float64]:
    return np.column_stack([sample.signal, sample.noise])


def _energies(sample: Sample, coef: NDArray[np.float64]) -> NDArray[np.float64]:
    """Risk, bias, variance from coefficients (2, rows, p): fits of the signal, fits of the noise."""
    bias = coef[0] - sample.beta
    return np.stack([sample.energy(e) for e in (bias + coef[1], bias, coef[1])], axis=-1)


def _running_means(
    features: subsets.Subsets, values: NDArray[np.float64], ks: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Means of the first k members for ascending ks, of shape (2, len(ks), p).

    Members between two neighbours of `ks` are added up at once: one histogram, then a cumulative sum over `ks`.
    """
    p = features.n_items
    segment = np.searchsorted(ks, np.arange(len(features)), side="right")
    place = np.repeat(segment * p, features.sizes) + features.indices
    sums = [np.bincount(place, weights=v, minlength=(len(ks) + 1) * p)[: len(ks) * p] for v in values.T]
    return np.cumsum(np.reshape(sums, (2, len(ks), p)), axis=1) / ks[:, None]


def _pair_energies(
    sample: Sample, features: subsets.Subsets, values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean energies of one member and of pairs of different ones: the square of the sum less the sum of squares."""
    K, p = len(features), features.n_items
    coef = np.zeros((2, K, p))
    coef[:, np.repeat(np.arange(K), features.sizes), features.indices] = values.T
    bias = coef[0] - sample.beta
    parts = (bias + coef[1], bias, coef[1])
    own = np.array([sample.energy(e).sum() for e in parts])
    everything = np.array([sample.energy(e.sum(axis=0)) for e in parts])
    return own / K, (everything - own) / (K * (K - 1))


def _ridge(X: NDArray[np.float64], Y: NDArray[np.float64], penalty: float) -> NDArray[np.float64]:
    """Coefficients (p, q), on the smaller side of X."""
    n, p = X.shape
    if penalty == 0:
        return np.asarray(np.linalg.lstsq(X, Y, rcond=None)[0])
    if p <= n:
        return np.asarray(la.solve(X.T @ X + penalty * np.eye(p), X.T @ Y, assume_a="pos"))
    return np.asarray(X.T @ la.solve(X @ X.T + penalty * np.eye(n), Y, assume_a="pos"))
