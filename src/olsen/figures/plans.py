"""Computations of each figure: cells to simulate, the expected value of each cell in theory, and
theoretical lines.

A plan becomes one tidy table (panel, series, kind, x, mean, standard_error, trials, expected,
status), from which the figure is drawn. `status` is the accuracy of the expected value: "exact" or
"approximate" at this n and p, or the "limit" of large n and p.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from .. import OLSEnsembleRegressor, theory
from ..datasets import load_soil_carbon
from ..simulation import Dropout, Ensemble, Estimator, LinearProblem, Ridge, montecarlo
from ..simulation.methods import QUANTITIES, Method
from ..subsets import Determinantal, draw_members
from .recipes import members

COLUMNS = ("panel", "series", "kind", "x", "mean", "standard_error", "trials", "expected", "status")
INF = math.inf
Floats: TypeAlias = NDArray[np.float64]
Cell: TypeAlias = tuple[LinearProblem, Method]


@dataclass
class Plan:
    """Points and lines of one figure, and the simulations of the points."""

    # a cell, the two indices of the value in its results, and the remaining entries of the row of
    # the table
    points: list[tuple[Cell, int, int, tuple[Any, ...]]] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)  # as in COLUMNS, without simulation

    def line(
        self, panel: str, series: str, x: ArrayLike, y: ArrayLike, kind: str = "theory"
    ) -> None:
        """Add a curve, or a single value to be drawn across the panel."""
        for x_, y_ in zip(*np.broadcast_arrays(x, y), strict=True):
            if not np.isnan(y_):
                self.rows.append(
                    (panel, series, kind, float(x_), float(y_), math.nan, 0, math.nan, "")
                )

    def simulate(
        self,
        problem: LinearProblem,
        method: Method,
        panel: str,
        series: str | list[str],
        x: ArrayLike,
        expected: ArrayLike = math.nan,
        status: str | list[str] = "",
        quantity: str = "risk",
    ) -> None:
        """Add a point for each k of the method; series, x, expected and status are common values or
        one value per k.
        """
        columns = (
            np.broadcast_to(v, len(method.k)).tolist() for v in (series, x, expected, status)
        )
        quantity_index = QUANTITIES.index(quantity)
        for k_index, entries in enumerate(zip(*columns, strict=True)):
            self.points.append(((problem, method), k_index, quantity_index, (panel, *entries)))

    def run(self, trials: int, **options: Any) -> dict[str, list[Any]]:
        """Simulate, and return the table of the figure."""
        cells = list(
            dict.fromkeys(cell for cell, *_ in self.points)
        )  # bias and variance come from one simulation
        estimates = dict(zip(cells, montecarlo.run(cells, trials=trials, **options), strict=True))
        rows = list(self.rows)
        for cell, k_index, quantity_index, (panel, series, x, expected, status) in self.points:
            mean = float(estimates[cell].mean[k_index, quantity_index])
            error = float(estimates[cell].standard_error[k_index, quantity_index])
            rows.append(
                (
                    panel,
                    series,
                    "simulation",
                    float(x),
                    mean,
                    error,
                    trials,
                    float(expected),
                    status,
                )
            )
        return {name: [row[i] for row in rows] for i, name in enumerate(COLUMNS)}


def deviation(table: Mapping[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """Largest distance of simulation from theory in standard errors, by the status of the theory.

    Examples
    --------
    >>> from olsen.figures import deviation
    >>> deviation({"kind": ["simulation"], "mean": [1.2], "expected": [1.0], "standard_error": [0.1],
    ...            "status": ["exact"], "series": ["one"], "x": [3.0]})["exact"]
    {'largest': 2.0, 'points': 1, 'series': 'one', 'x': 3.0}
    """
    deviations: dict[str, dict[str, Any]] = {}
    names = ("kind", "mean", "expected", "standard_error", "status", "series", "x")
    for kind, mean, expected, error, status, series, x in zip(
        *(table[name] for name in names), strict=True
    ):
        if kind != "simulation" or not (math.isfinite(expected) and error > 0):
            continue
        entry = deviations.setdefault(
            status, {"largest": -1.0, "points": 0, "series": "", "x": 0.0}
        )
        entry["points"] += 1
        distance = round(abs(mean - expected) / error, 10)
        if distance > entry["largest"]:
            entry.update(largest=distance, series=series, x=x)
    return deviations


def _subsampling(c: SimpleNamespace) -> Plan:
    """Figure 1: the rows and columns of one member."""
    features, samples = draw_members(
        c.n, c.p, 1, seed=c.seed, max_features=c.n_features, max_samples=c.n_samples
    )
    assert samples is not None
    plan = Plan()
    plan.line("member", "shape", [c.n, c.p], [0.0, 1.0], kind="picture")
    plan.line("member", "rows", samples[0], 0.0, kind="picture")
    plan.line("member", "columns", features[0], 0.0, kind="picture")
    return plan


def _risk_against_members(c: SimpleNamespace) -> Plan:
    """Risk against the number of members: all rows, few rows, determinantal."""
    plan = Plan()
    fine = members(c.k[-1], 100)
    for gamma in c.gammas:
        p = round(gamma * c.n)
        name = f"gamma={gamma:g}"
        m = round(float(theory.optimal_alpha(gamma, c.sigma)) * p)
        problem = LinearProblem(c.n, p, c.sigma)
        for rows, label, status in (
            (c.n, "all rows", "exact"),
            (round(c.row_factor * m), "few rows", "approximate"),
        ):
            series = f"{name}, {label}"
            expected_risk = partial(theory.expected_risk, c.n, p, m, c.sigma, n_samples=rows)
            plan.line("risk", series, fine, expected_risk(k=fine))
            method = Ensemble(m, 1.0 if rows == c.n else rows, k=c.k)
            plan.simulate(
                problem, method, "risk", series, x=c.k, expected=expected_risk(k=c.k), status=status
            )
        plan.simulate(
            problem,
            Ensemble(m, k=c.k, sampling="determinantal"),
            "risk",
            f"{name}, determinantal",
            c.k,
        )
        plan.line(
            "risk",
            f"{name}, optimal ridge",
            [1.0],
            theory.optimal_ridge_risk(gamma, c.sigma),
            "reference",
        )
    return plan


def _risk_against_noise(c: SimpleNamespace) -> Plan:
    """Risk against the noise, at the best size for infinitely many members and for k members."""
    plan = Plan()
    gamma = c.p / c.n
    fine = np.geomspace(c.low, c.high, 61)

    def best_size(sigma: float, k: float) -> float:
        return max(1.0, float(theory.optimal_alpha(gamma, sigma, k=k)) * float(c.p))

    def smooth_risk(size: float, sigma: float, k: float) -> float:
        """Risk interpolated between whole numbers of columns, without which the line would be a
        saw.
        """
        whole_sizes = np.array([np.floor(size), np.floor(size) + 1])
        low, high = theory.expected_risk(c.n, c.p, whole_sizes, sigma, k=k)
        return float(low ** (1 - size % 1) * high ** (size % 1))

    for panel in ("alpha_*", "alpha of k"):
        for k in c.ks:
            sizes = [best_size(sigma, INF if panel == "alpha_*" else k) for sigma in fine]
            risks = [smooth_risk(size, sigma, k) for size, sigma in zip(sizes, fine, strict=True)]
            plan.line(panel, f"k={k}", fine, risks)
        plan.line(panel, "optimal ridge", fine, theory.optimal_ridge_risk(gamma, fine), "reference")
    for sigma in c.sigmas:
        problem = LinearProblem(c.n, c.p, sigma)
        m = round(best_size(sigma, INF))
        expected = theory.expected_risk(c.n, c.p, m, sigma, k=c.ks)
        names = [f"k={k}" for k in c.ks]
        plan.simulate(
            problem,
            Ensemble(m, k=c.ks),
            "alpha_*",
            names,
            x=sigma,
            expected=expected,
            status="exact",
        )
        for k in c.ks:
            m = round(best_size(sigma, k))
            expected = theory.expected_risk(c.n, c.p, m, sigma, k=k)
            method = Ensemble(m, k=(k,))
            plan.simulate(
                problem, method, "alpha of k", f"k={k}", x=sigma, expected=expected, status="exact"
            )
    return plan


def _scaled(c: SimpleNamespace) -> Plan:
    """Risk of the large ensemble with and without the best scale."""
    plan = Plan()
    gamma = c.p / c.n
    fine = np.geomspace(c.low, c.high, 121)
    choices: dict[str, Callable[[ArrayLike], Floats]] = {
        "alpha_*/2": lambda sigma: theory.optimal_alpha(gamma, sigma) / 2,
        "alpha=1/2": lambda sigma: np.full(np.shape(sigma), c.fixed_alpha),
    }
    for (name, alpha), scaled in product(choices.items(), (False, True)):
        series = f"{name}, {'best mu' if scaled else 'mu=1'}"
        scales = theory.optimal_mu(alpha(fine), gamma, fine) if scaled else 1.0
        plan.line("risk", series, fine, theory.limiting_risk(alpha(fine), gamma, fine, mu=scales))
        for sigma in c.sigmas:
            m = max(1, round(float(alpha(sigma)) * c.p))
            mu = float(theory.optimal_mu(m / c.p, gamma, sigma)) if scaled else 1.0
            expected = theory.expected_risk(c.n, c.p, m, sigma, k=INF, mu=mu)
            problem = LinearProblem(c.n, c.p, sigma)
            method = Ensemble(m, k=(INF,), members=c.members, scale=mu)
            plan.simulate(
                problem, method, "risk", series, x=sigma, expected=expected, status="exact"
            )
    plan.line("risk", "optimal ridge", fine, theory.optimal_ridge_risk(gamma, fine), "reference")
    return plan


def _bias_and_variance(c: SimpleNamespace) -> Plan:
    """Bias and variance against the number of members, for independent and balanced designs."""
    plan = Plan()
    fine = members(c.k[-1], 100)
    problem = LinearProblem(c.n, c.p, c.sigma)
    m = round(float(theory.optimal_alpha(c.p / c.n, c.sigma)) * c.p)
    bias = partial(theory.expected_bias, c.n, c.p, m)
    variance = partial(theory.expected_variance, c.n, c.p, m, c.sigma)
    for quantity, expected_value in (("bias", bias), ("variance", variance)):
        for design in ("independent", "balanced"):
            series = f"{design} members"
            plan.line(quantity, series, fine, expected_value(k=fine, design=design))
            plan.simulate(
                problem,
                Ensemble(m, k=c.k, design=design),
                panel=quantity,
                series=series,
                x=c.k,
                expected=expected_value(k=c.k, design=design),
                status="exact",
                quantity=quantity,
            )
        plan.line(quantity, "k=inf", [1.0], expected_value(k=INF), "reference")
    return plan


def _double_descent(c: SimpleNamespace) -> Plan:
    """Risk against the size of members, through the interpolation peak."""
    plan = Plan()
    problem = LinearProblem(c.n, c.p, c.sigma)
    series = [f"k={k:g}" for k in c.ks]

    def risks(m: int) -> Floats:
        """Expected risk of least-squares members below the peak and of minimum-norm members above."""
        if abs(m - c.n) <= 1:
            return np.where(
                np.isinf(c.ks), np.nan, np.inf
            )  # pairs have a finite limit but no formula at finite n
        if m < c.n:
            return theory.expected_risk(c.n, c.p, m, c.sigma, k=c.ks)
        return theory.minimum_norm_risk(c.n, c.p, m, c.sigma, k=c.ks, n_samples=c.n)

    fine = np.arange(1, c.p + 1)
    for name, line in zip(series, np.transpose([risks(m) for m in fine]), strict=True):
        plan.line("risk", name, fine, line)
    for m in c.sizes:
        status = ["exact" if m < c.n or k == 1 else "approximate" for k in c.ks]
        method = Ensemble(m, k=c.ks, members=c.members)
        plan.simulate(problem, method, "risk", series, x=m, expected=risks(m), status=status)
    plan.line(
        "risk", "optimal ridge", [1.0], theory.optimal_ridge_risk(c.p / c.n, c.sigma), "reference"
    )
    plan.line("risk", "columns = rows", [c.n], 0.0, "reference")
    return plan


def _unequal_covariance(c: SimpleNamespace) -> Plan:
    """Risk of uniform and ridge-matched sampling under unequal covariance."""
    plan = Plan()
    for covariance, strength in c.covariances:
        problem = LinearProblem(
            c.n, c.p, c.sigma, covariance, strength=strength, coefficients="fixed"
        )
        Sigma = problem.covariance_matrix()
        beta = problem.fixed_beta()
        eigenvalues = np.linalg.eigvalsh(Sigma)
        ensemble_risk = partial(
            theory.covariance_risk, Sigma, beta, sigma=c.sigma, n=c.n, n_subsets=c.n_subsets, rng=0
        )
        # lines have values at the simulated fractions and between them
        fractions = {
            *c.shares,
            *np.linspace(c.shares[0], c.shares[-1], c.line_points).round(3).tolist(),
        }
        for fraction in sorted(fractions):
            penalty = _penalty_of_degrees(eigenvalues, c.n, fraction)
            probabilities = theory.ridge_matched_probabilities(Sigma, penalty, n=c.n)
            uniform = Ensemble(fraction, k=(INF,), members=c.members)
            matched = Ensemble(sampling="bernoulli", penalty=penalty, k=(INF,), members=c.members)
            ridge_risk = theory.ridge_covariance_risk(Sigma, beta, penalty, c.sigma, n=c.n)
            methods: dict[str, tuple[Method, Any]] = {
                "ensemble, uniform": (uniform, ensemble_risk(alpha=fraction)),
                "ensemble, matched to ridge": (matched, ensemble_risk(alpha=probabilities)),
                "ridge": (Ridge(penalty), ridge_risk),
            }
            for series, (method, expected) in methods.items():
                plan.line(covariance, series, [fraction], expected)
                if fraction in c.shares:
                    plan.simulate(
                        problem,
                        method,
                        covariance,
                        series,
                        x=fraction,
                        expected=expected,
                        status="limit",
                    )
    return plan


def _penalty_of_degrees(eigenvalues: NDArray[np.floating[Any]], n: int, fraction: float) -> float:
    """The ridge penalty at which the degrees of freedom are this fraction of the columns, in the
    limit.
    """
    degrees = fraction * len(eigenvalues)
    log_mu = brentq(lambda u: np.sum(eigenvalues / (eigenvalues + np.exp(u))) - degrees, -30, 30)
    return float(np.exp(log_mu) * (n - degrees))


def _dropout(c: SimpleNamespace) -> Plan:
    """Limiting risks as functions of alpha; dropout is ridge with lambda / n = (1 - alpha) / alpha,
    over alpha.
    """
    plan = Plan()
    for gamma in c.gammas:
        panel = f"gamma={gamma:g}"
        p = round(gamma * c.n)
        problem = LinearProblem(c.n, p, c.sigma)
        max_alpha = min(1.0, 1 / gamma)

        def dropout(alpha: Any, scale: Any, gamma: float = gamma) -> Floats:
            penalty = (1 - alpha) / alpha
            shrinkage = theory.alpha_from_penalty(penalty, gamma)
            return theory.scaled_risk(theory.ridge_risk(penalty, gamma, c.sigma), shrinkage, scale)

        def limits(alpha: Any, gamma: float = gamma) -> dict[str, Floats]:
            return {
                "dropout": dropout(alpha, 1 / alpha),
                "dropout times alpha": dropout(alpha, 1.0),
                "ridge, implied penalty": theory.ridge_risk(
                    theory.penalty_from_alpha(alpha, gamma), gamma, c.sigma
                ),
                "ensemble, k=inf": theory.limiting_risk(alpha, gamma, c.sigma),
            }

        fine = np.linspace(0.04, 0.96, 93) * max_alpha
        for series, line in limits(fine).items():
            plan.line(panel, series, fine, line)
        for target_alpha in np.linspace(0.1, 0.9, c.points) * max_alpha:
            m = round(target_alpha * p)
            alpha = m / p
            methods: dict[str, Method] = {
                "dropout": Dropout(alpha),
                "dropout times alpha": Dropout(alpha, rescale=True),
                "ridge, implied penalty": Ridge(
                    float(c.n * theory.penalty_from_alpha(alpha, gamma))
                ),
            }
            for series, method in methods.items():
                expected = limits(alpha)[series]
                plan.simulate(
                    problem, method, panel, series, x=alpha, expected=expected, status="limit"
                )
            ensemble = Ensemble(m, k=(INF,), members=c.members)
            expected = theory.expected_risk(c.n, p, m, c.sigma, k=INF)
            plan.simulate(
                problem,
                ensemble,
                panel,
                "ensemble, k=inf",
                x=alpha,
                expected=expected,
                status="exact",
            )
    return plan


def _sparse(c: SimpleNamespace) -> Plan:
    """Risk of tuned estimators against the number of coefficients that are not zero."""
    plan = Plan()
    penalties = tuple(np.geomspace(1e-3, 1e4, 50).tolist())

    def tuned(name: str) -> Estimator:
        return Estimator(f"olsen.{name}", (("fit_intercept", False),))

    methods = {
        "adaptive ensemble": tuned("AdaptiveOLSEnsembleRegressor"),
        "ensemble, size tuned": tuned("OLSEnsembleRegressorCV"),
        "ridge": Estimator(
            "sklearn.linear_model.RidgeCV", (("fit_intercept", False), ("alphas", penalties))
        ),
        "lasso": Estimator(
            "sklearn.linear_model.LassoCV", (("fit_intercept", False), ("max_iter", 20_000))
        ),
    }
    for nonzeros in c.nonzeros:
        problem = LinearProblem(c.n, c.p, c.sigma, coefficients="sparse", nonzeros=nonzeros)
        for series, method in methods.items():
            plan.simulate(problem, method, "risk", series, nonzeros)
        plan.line(
            "risk",
            "coefficients known",
            [nonzeros],
            _risk_with_known_coefficients(c, problem),
            "reference",
        )
    plan.line(
        "risk", "optimal ridge", [1.0], theory.optimal_ridge_risk(c.p / c.n, c.sigma), "reference"
    )
    return plan


def _distance_from_ridge(c: SimpleNamespace) -> Plan:
    """Relative distance, on real columns, of the fitted values of k members from the equivalent
    ridge regression.
    """
    plan = Plan()
    spectra, carbon = load_soil_carbon(return_X_y=True)
    X = spectra[: c.n, :: c.every]
    y = carbon[: c.n]
    A = X - X.mean(axis=0)
    b = (y - y.mean())[:, None]
    process = Determinantal.from_rows(A, c.size)
    ridge = A @ process.mean_coefficients(A.T @ b)[:, 0]
    probabilities = {"max_features": process.probabilities}
    settings_of_series = {
        "determinantal": {"max_features": float(c.size) / A.shape[1], "sampling": "determinantal"},
        "coin flips, same probabilities": {
            **probabilities,
            "sampling": "bernoulli",
            "design": "independent",
        },
        "balanced, same probabilities": {**probabilities, "design": "balanced"},
        "balanced, uniform": {"max_features": c.size},
    }
    for series, settings in settings_of_series.items():
        distances = np.empty((c.repeats, len(c.k)))
        for i in range(c.repeats):
            for j, k in enumerate(c.k):
                model = OLSEnsembleRegressor(k, random_state=i, n_jobs=-1, **settings).fit(X, y)
                distances[i, j] = np.linalg.norm(A @ model.coef_ - ridge) / np.linalg.norm(ridge)
        means = distances.mean(axis=0)
        errors = distances.std(axis=0, ddof=1) / c.repeats**0.5
        for k, mean, error in zip(c.k, means, errors, strict=True):
            plan.rows.append(
                (
                    "distance",
                    series,
                    "simulation",
                    k,
                    float(mean),
                    float(error),
                    c.repeats,
                    math.nan,
                    "",
                )
            )
    return plan


def _risk_with_known_coefficients(c: SimpleNamespace, problem: LinearProblem) -> float:
    """Risk of the infinite ensemble with the best probabilities, averaged over drawn coefficients."""
    rng = np.random.default_rng(0)
    variances = np.ones(c.p)
    risks = []
    for _ in range(c.draws):
        beta = problem.draw_coefficients(rng)
        probabilities = theory.optimal_probabilities(variances, beta, c.sigma, n=c.n)
        risks.append(theory.diagonal_risk(variances, beta, probabilities, c.sigma, n=c.n))
    return float(np.mean(risks))


PLANS: Mapping[str, Callable[[SimpleNamespace], Plan]] = {
    "figure1": _subsampling,
    "figure2": _risk_against_members,
    "figure3": _risk_against_noise,
    "figure4": _scaled,
    "figure5": _bias_and_variance,
    "figure6": _double_descent,
    "figure7": _unequal_covariance,
    "figure8": _dropout,
    "figure9": _sparse,
    "figure10": _distance_from_ridge,
}
