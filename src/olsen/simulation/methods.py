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

from .. import OLSEnsembleRegressorCV, _members, subsets
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
    >>> (estimate,) = run(
    ...     [(LinearProblem(30, 20), Ensemble(5, k=(1, 10)))], trials=4, rng=0
    ... )
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
        seed = subsets.integer_seed(rng)
        if np.inf in self.k:
            return self._from_pairs(sample, seed)
        ks = np.array(self.k)
        features, values = self._members(sample, self.members or int(max(ks)), seed)
        # a member is in the averages of all numbers of members beyond its own number
        first_average = np.searchsorted(ks, _owners(features), side="right")
        shape = (len(ks) + 1, features.n_items)  # the last one is for members in no average
        entry = first_average * features.n_items + features.indices
        sums = [np.bincount(entry, target, np.prod(shape)).reshape(shape) for target in values]
        totals = np.cumsum(sums, axis=1)[:, :-1]
        return _energies(sample, self.scale * totals / ks[:, None])

    def _from_pairs(self, sample: Sample, seed: int) -> NDArray[np.float64]:
        """Risk, bias and variance for every k from all members and pairs of members."""
        n_members = self.members or 100
        features, values = self._members(sample, n_members, seed)
        coef = np.zeros((2, n_members, features.n_items))
        coef[:, _owners(features), features.indices] = self.scale * values
        single = _energies(sample, coef).mean(axis=0)
        # over all ordered pairs, including a member with itself
        mean = _energies(sample, coef.mean(axis=1))
        pair = (n_members * mean - single) / (n_members - 1)
        return np.asarray(pair + (single - pair) / np.array(self.k)[:, None])

    def _members(
        self, sample: Sample, n_members: int, seed: int
    ) -> tuple[subsets.Subsets, NDArray[np.float64]]:
        """Columns of all members, and their coefficients fitted to the signal and to the noise:
        shape (2, entries).
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
        return features, _members.solve(sample.training, features, rows).values.T


def _owners(features: subsets.Subsets) -> NDArray[np.int64]:
    """The member that each entry of the subsets belongs to."""
    return np.repeat(np.arange(len(features)), features.sizes)


@dataclass(frozen=True)
class Ridge:
    r"""Ridge regression without intercept, :math:`(X^\top X + \lambda I)^{-1}X^\top y`: equation (23)
    of the paper.

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
        p = sample.X.shape[1]
        return _energies(sample, _penalised(sample, np.full(p, self.penalty)))


@dataclass(frozen=True)
class Dropout:
    r"""Limit of dropout that keeps columns with probability `alpha` (paper, equation (34)).

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
        squares = np.diagonal(sample.training.moments.G)
        coef = _penalised(sample, (1 - self.alpha) / self.alpha * squares)
        return _energies(sample, coef if self.rescale else coef / self.alpha)


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
    >>> run([(LinearProblem(40, 10, coefficients="sparse"), lasso)], trials=2, rng=0)[
    ...     0
    ... ].trials
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


@dataclass(frozen=True)
class ErrorEstimate:
    """The estimated over the true error of an ensemble, noise included, in place of the risk.

    Parameters
    ----------
    criterion : str or None
        As `cv` of `OLSEnsembleRegressorCV`; None is leave-one-out.
    n_features, members : int
        Columns of a member, and members.
    noise_variance : float
        Variance of the noise of the problem.
    """

    criterion: str | None
    n_features: int
    members: int
    noise_variance: float
    k: tuple[int, ...] = field(default=(1,), init=False)

    def evaluate(
        self, sample: Sample, rng: np.random.Generator | int | None
    ) -> NDArray[np.float64]:
        """The ratio; bias and variance are not defined."""
        model = OLSEnsembleRegressorCV(
            self.members,
            max_features=[self.n_features],
            cv=self.criterion,
            scale=1.0,
            fit_intercept=False,
            random_state=subsets.integer_seed(rng) % 2**31,
        ).fit(sample.X, sample.y)
        estimate = -model.cv_results_["mean_test_score"][0]
        true_error = sample.energy(model.coef_ - sample.beta) + self.noise_variance
        return np.array([[estimate / true_error, np.nan, np.nan]])


Method: TypeAlias = Ensemble | Ridge | Dropout | Estimator | ErrorEstimate


def _penalised(sample: Sample, penalties: NDArray[np.float64]) -> NDArray[np.float64]:
    """Coefficients (G + diag(penalties))^-1 c of the signal and of the noise, of shape (2, 1, p);
    of minimum norm without penalty.
    """
    training = sample.training
    if penalties.any():
        moments = training.moments
        coef = np.linalg.solve(moments.G + np.diag(penalties), moments.C)
    else:
        coef = np.linalg.lstsq(sample.X, training.Y)[0]
    return np.asarray(coef.T[:, None, :])


def _energies(sample: Sample, coef: NDArray[np.float64]) -> NDArray[np.float64]:
    """Risk, bias, variance from coefficients (2, ..., p): fits of the signal, fits of the noise."""
    bias = coef[0] - sample.beta
    errors = (bias + coef[1], bias, coef[1])
    return np.stack([sample.energy(error) for error in errors], axis=-1)
