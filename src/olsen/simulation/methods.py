r"""What is tried on a problem: ensembles, ridge, dropout, any estimator.

Everything linear in `y` is given the signal and the noise as two targets. Their errors add up to the error of the fit,
and their energies are its bias and its variance, trial by trial, at the price of one more right-hand side.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge as RidgeRegressor

from .. import _members, subsets
from .._dropout.estimator import DropoutRegressor
from ..equivalence import inclusion_probabilities
from .problems import Sample

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
        ks, pooled = np.array(self.k), np.inf in self.k
        coef = self.scale * self._coefficients(sample, self.members or (100 if pooled else int(max(self.k))), seed)
        if not pooled:
            return _energies(sample, np.cumsum(coef, axis=1)[:, ks - 1] / ks[:, None])
        total = coef.shape[1]
        own = _energies(sample, coef).mean(axis=0)
        mean = _energies(sample, coef.mean(axis=1))  # of all pairs, those of a member with itself among them
        pair = (total * mean - own) / (total - 1)
        return np.asarray(pair + (own - pair) / ks[:, None])

    def _coefficients(self, sample: Sample, total: int, seed: int) -> NDArray[np.float64]:
        """Those of all members, fitted to the signal and to the noise: shape (2, total, p)."""
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
        solution = _members.solve(_members.Problem(sample.X, _two_targets(sample), None, False), features, rows)
        coef = np.zeros((2, total, p))
        coef[:, np.repeat(np.arange(total), features.sizes), features.indices] = solution.values.T
        return coef


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
        model = RidgeRegressor(self.penalty, fit_intercept=False, solver="cholesky" if self.penalty else "svd")
        return _energies(sample, model.fit(sample.X, _two_targets(sample)).coef_[:, None, :])


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
        model = DropoutRegressor(self.alpha, rescale=self.rescale, fit_intercept=False)
        return _energies(sample, model.fit(sample.X, _two_targets(sample)).coef_[:, None, :])


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
    """Risk, bias, variance from coefficients (2, ..., p): fits of the signal, fits of the noise."""
    bias = coef[0] - sample.beta
    return np.stack([sample.energy(e) for e in (bias + coef[1], bias, coef[1])], axis=-1)
