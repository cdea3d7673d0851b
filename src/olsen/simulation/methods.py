r"""Methods to try on a problem: ensembles, ridge, dropout, any estimator.

Methods that are linear in `y` are fitted to the signal and the noise as two targets. The two errors
add up to the error of the fit, and the two energies are its bias and its variance in every trial,
at the price of a second right-hand side.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge as RidgeRegressor

from .. import _members, subsets
from .._data.rows import RowData
from .._dropout.estimator import DropoutRegressor
from ..equivalence import inclusion_probabilities
from .problems import Sample

QUANTITIES = ("risk", "bias", "variance")


@dataclass(frozen=True)
class Ensemble:
    r"""Least-squares members without intercept, averaged, at several numbers of members from one
    solve.

    Parameters
    ----------
    max_features : int, float or tuple, default=0.5
        Columns per member: a count, a fraction, or one probability per column.
    max_samples : int or float, default=1.0
        Rows per member.
    k : tuple of int or inf, default=(100,)
        Numbers of members, ascending: the first `k` members drawn are averaged. If ``inf`` is
        included, every `k` is computed from all K members drawn, as :math:`R_{off} + (R_{diag} -
        R_{off})/k` with
        :math:`R_{diag}` the mean energy of a member's error and :math:`R_{off}` the mean over different members.
        The expectation is equal, the noise is smaller, and ``k=inf`` is :math:`R_{off}`.
    members : int, default=None
        Number K of members to draw. None: the largest `k`, or 100 if `k` includes ``inf``.
    sampling : {"fixed", "bernoulli", "determinantal"}, default="fixed"
        As in `OLSEnsembleRegressor`; determinantal members have `max_features` columns on average.
    design : {"independent", "balanced"}, default="independent"
        As in `OLSEnsembleRegressor`. ``inf`` needs independent members.
    scale : float, default=1.0
        Factor on the average.
    penalty : float, default=None
        If not None, columns are drawn with the probabilities matched to this ridge penalty on the
        drawn data, and `max_features` is not used.

    Examples
    --------
    >>> from olsen.simulation import Ensemble, LinearProblem, run
    >>> (estimate,) = run([(LinearProblem(30, 20), Ensemble(5, k=(1, 10)))], trials=4, rng=0)
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

    def evaluate(
        self, sample: Sample, rng: np.random.Generator | int | None
    ) -> NDArray[np.float64]:
        """Risk, bias and variance for every k, of shape (len(k), 3)."""
        ks = np.array(self.k)
        uses_pairs = np.inf in self.k
        n_members = self.members or (100 if uses_pairs else int(max(self.k)))
        coef = self.scale * self._coefficients(sample, n_members, subsets.integer_seed(rng))
        if not uses_pairs:
            return _energies(sample, np.cumsum(coef, axis=1)[:, ks - 1] / ks[:, None])
        single = _energies(sample, coef).mean(axis=0)
        mean = _energies(
            sample, coef.mean(axis=1)
        )  # over all ordered pairs, including a member with itself
        pair = (n_members * mean - single) / (n_members - 1)
        return np.asarray(pair + (single - pair) / ks[:, None])

    def _coefficients(self, sample: Sample, n_members: int, seed: int) -> NDArray[np.float64]:
        """Coefficients of all members, fitted to the signal and to the noise: shape (2, n_members,
        p).
        """
        n, p = sample.X.shape
        max_features: Any = self.max_features
        if self.penalty is not None:
            max_features = inclusion_probabilities(
                sample.X, self.penalty, center=False, check_collinear=False
            )
        elif np.ndim(max_features):
            max_features = np.array(max_features)
        if self.sampling == "determinantal":
            size = subsets.Design(n, p, seed, max_features).expected_size
            process = subsets.Determinantal.from_rows(sample.X, size)
            features = process.draw(0, n_members, rng=seed)
            rows = None
        else:
            features, rows = subsets.draw_members(
                n,
                p,
                n_members,
                rng=seed,
                max_features=max_features,
                max_samples=self.max_samples,
                sampling=self.sampling,
                design=self.design,
            )
        problem = RowData(sample.X, _two_targets(sample), None, False)
        solution = _members.solve(problem, features, rows)
        members = np.repeat(np.arange(n_members), features.sizes)
        coef = np.zeros((2, n_members, p))
        coef[:, members, features.indices] = solution.values.T
        return coef


@dataclass(frozen=True)
class Ridge:
    r"""Ridge regression without intercept, :math:`(X^\top X + \lambda I)^{-1}X^\top y`.

    Parameters
    ----------
    penalty : float
        :math:`\lambda`; zero is least squares, of minimum norm if there are fewer rows than columns.
    """

    penalty: float
    k: tuple[int, ...] = field(default=(1,), init=False)

    def evaluate(
        self, sample: Sample, rng: np.random.Generator | int | None
    ) -> NDArray[np.float64]:
        """Risk, bias and variance, of shape (1, 3)."""
        model = RidgeRegressor(
            self.penalty, fit_intercept=False, solver="cholesky" if self.penalty else "svd"
        )
        return _energies(sample, model.fit(sample.X, _two_targets(sample)).coef_[:, None, :])


@dataclass(frozen=True)
class Dropout:
    r"""Limit of dropout that keeps columns with probability `alpha` (paper, eq. dropout).

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

    def evaluate(
        self, sample: Sample, rng: np.random.Generator | int | None
    ) -> NDArray[np.float64]:
        """Risk, bias and variance, of shape (1, 3)."""
        model = DropoutRegressor(self.alpha, rescale=self.rescale, fit_intercept=False)
        return _energies(sample, model.fit(sample.X, _two_targets(sample)).coef_[:, None, :])


@dataclass(frozen=True)
class Estimator:
    """Any estimator with `coef_`; only its risk is computed, because it need not be linear in `y`.

    Parameters
    ----------
    path : str
        Import path of the class, such as ``"sklearn.linear_model.RidgeCV"``.
    parameters : tuple of (name, value), default=()
        Parameters of the estimator; ``random_state`` is set if the estimator has that parameter.

    Examples
    --------
    >>> from olsen.simulation import Estimator, LinearProblem, run
    >>> lasso = Estimator("sklearn.linear_model.LassoCV", (("fit_intercept", False),))
    >>> run([(LinearProblem(40, 10, coefficients="sparse"), lasso)], trials=2, rng=0)[0].trials
    2
    """

    path: str
    parameters: tuple[tuple[str, object], ...] = ()
    k: tuple[int, ...] = field(default=(1,), init=False)

    def evaluate(
        self, sample: Sample, rng: np.random.Generator | int | None
    ) -> NDArray[np.float64]:
        """Risk; bias and variance are not defined."""
        module, _, name = self.path.rpartition(".")
        model = getattr(importlib.import_module(module), name)(**dict(self.parameters))
        if "random_state" in model.get_params():
            model.set_params(random_state=subsets.integer_seed(rng) % 2**31)
        coef = np.ravel(model.fit(sample.X, sample.y).coef_)
        return np.array([[sample.energy(coef - sample.beta), np.nan, np.nan]])


Method: TypeAlias = Ensemble | Ridge | Dropout | Estimator


def _two_targets(sample: Sample) -> NDArray[np.float64]:
    return np.column_stack([sample.signal, sample.noise])


def _energies(sample: Sample, coef: NDArray[np.float64]) -> NDArray[np.float64]:
    """Risk, bias, variance from coefficients (2, ..., p): fits of the signal, fits of the noise."""
    bias = coef[0] - sample.beta
    errors = (bias + coef[1], bias, coef[1])
    return np.stack([sample.energy(error) for error in errors], axis=-1)
