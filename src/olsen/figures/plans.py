"""What each figure computes: cells to simulate, the value theory expects of each, and the lines behind them.

A plan becomes one tidy table (panel, series, kind, x, mean, standard_error, trials, expected, status), and a drawing
needs nothing else. `status` says how good the expected value is: "exact" or "approximate" at this n and p, or the
"limit" of large n and p.
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
    """Points and lines of one figure, and what has to be simulated for them."""

    # a cell, the place of the value in its results, and the rest of the row
    points: list[tuple[Cell, int, int, tuple[Any, ...]]] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)  # as in COLUMNS, without simulation

    def line(self, panel: str, series: str, x: ArrayLike, y: ArrayLike, kind: str = "theory") -> None:
        """A curve, or a single value to be drawn across the panel."""
        for x_, y_ in zip(*np.broadcast_arrays(x, y), strict=True):
            if not np.isnan(y_):
                self.rows.append((panel, series, kind, float(x_), float(y_), math.nan, 0, math.nan, ""))

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
        """A point for each k of the method; name, place, expected value and status are common or one for each."""
        columns = (np.broadcast_to(v, len(method.k)).tolist() for v in (series, x, expected, status))
        for i, point in enumerate(zip(*columns, strict=True)):
            self.points.append(((problem, method), i, QUANTITIES.index(quantity), (panel, *point)))

    def run(self, trials: int, **options: Any) -> dict[str, list[Any]]:
        """Simulate, and return the figure's table."""
        cells = list(dict.fromkeys(cell for cell, *_ in self.points))  # bias and variance of one fit are one simulation
        estimates = dict(zip(cells, montecarlo.run(cells, trials=trials, **options), strict=True))
        rows = list(self.rows)
        for cell, i, q, (panel, series, x, expected, status) in self.points:
            mean, error = (float(found[i, q]) for found in (estimates[cell].mean, estimates[cell].standard_error))
            rows.append((panel, series, "simulation", float(x), mean, error, trials, float(expected), status))
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
    found: dict[str, dict[str, Any]] = {}
    names = ("kind", "mean", "expected", "standard_error", "status", "series", "x")
    for kind, mean, expected, error, status, series, x in zip(*(table[name] for name in names), strict=True):
        if kind != "simulation" or not (math.isfinite(expected) and error > 0):
            continue
        entry = found.setdefault(status, {"largest": -1.0, "points": 0, "series": "", "x": 0.0})
        entry["points"] += 1
        distance = round(abs(mean - expected) / error, 10)
        if distance > entry["largest"]:
            entry.update(largest=distance, series=series, x=x)
    return found


def _subsampling(c: SimpleNamespace) -> Plan:
    features, samples = draw_members(c.n, c.p, 1, seed=c.seed, max_features=c.n_features, max_samples=c.n_samples)
    assert samples is not None
    plan = Plan()
    plan.line("member", "shape", [c.n, c.p], [0.0, 1.0], kind="picture")
    plan.line("member", "rows", samples[0], 0.0, kind="picture")
    plan.line("member", "columns", features[0], 0.0, kind="picture")
    return plan


def _risk_against_members(c: SimpleNamespace) -> Plan:
    plan, fine = Plan(), members(c.k[-1], 100)
    for gamma in c.gammas:
        p, name = round(gamma * c.n), f"gamma={gamma:g}"
        m = round(float(theory.optimal_alpha(gamma, c.sigma)) * p)
        problem = LinearProblem(c.n, p, c.sigma)
        for rows, series, status in ((c.n, "all rows", "exact"), (round(c.row_factor * m), "few rows", "approximate")):
            expected, line = (theory.expected_risk(c.n, p, m, c.sigma, k=k, n_samples=rows) for k in (c.k, fine))
            method = Ensemble(m, 1.0 if rows == c.n else rows, k=c.k)
            plan.line("risk", f"{name}, {series}", fine, line)
            plan.simulate(problem, method, "risk", f"{name}, {series}", c.k, expected, status)
        plan.simulate(problem, Ensemble(m, k=c.k, sampling="determinantal"), "risk", f"{name}, determinantal", c.k)
        plan.line("risk", f"{name}, optimal ridge", [1.0], theory.optimal_ridge_risk(gamma, c.sigma), "reference")
    return plan


def _risk_against_noise(c: SimpleNamespace) -> Plan:
    plan, gamma = Plan(), c.p / c.n
    fine = np.geomspace(c.low, c.high, 61)

    def best_size(sigma: float, k: float) -> float:
        return max(1.0, float(theory.optimal_alpha(gamma, sigma, k=k)) * float(c.p))

    def smooth_risk(size: float, sigma: float, k: float) -> float:
        """Between whole numbers of columns the risk is interpolated; otherwise the line would be a saw."""
        low, high = theory.expected_risk(c.n, c.p, np.array([np.floor(size), np.floor(size) + 1]), sigma, k=k)
        return float(low ** (1 - size % 1) * high ** (size % 1))

    for panel in ("alpha_*", "alpha of k"):
        for k in c.ks:
            sizes = [best_size(sigma, INF if panel == "alpha_*" else k) for sigma in fine]
            risks = [smooth_risk(size, sigma, k) for size, sigma in zip(sizes, fine, strict=True)]
            plan.line(panel, f"k={k}", fine, risks)
        plan.line(panel, "optimal ridge", fine, theory.optimal_ridge_risk(gamma, fine), "reference")
    for sigma in c.sigmas:
        problem, m = LinearProblem(c.n, c.p, sigma), round(best_size(sigma, INF))
        expected = theory.expected_risk(c.n, c.p, m, sigma, k=c.ks)
        plan.simulate(problem, Ensemble(m, k=c.ks), "alpha_*", [f"k={k}" for k in c.ks], sigma, expected, "exact")
        for k in c.ks:
            m = round(best_size(sigma, k))
            expected = theory.expected_risk(c.n, c.p, m, sigma, k=k)
            plan.simulate(problem, Ensemble(m, k=(k,)), "alpha of k", f"k={k}", sigma, expected, "exact")
    return plan


def _scaled(c: SimpleNamespace) -> Plan:
    plan, gamma = Plan(), c.p / c.n
    fine = np.geomspace(c.low, c.high, 121)
    choices: dict[str, Callable[[ArrayLike], Floats]] = {
        "alpha_*/2": lambda sigma: theory.optimal_alpha(gamma, sigma) / 2,
        "alpha=1/2": lambda sigma: np.full(np.shape(sigma), c.fixed_alpha),
    }
    for (name, alpha), scaled in product(choices.items(), (False, True)):
        series = f"{name}, {'best mu' if scaled else 'mu=1'}"
        best = theory.optimal_mu(alpha(fine), gamma, fine) if scaled else 1.0
        plan.line("risk", series, fine, theory.limiting_risk(alpha(fine), gamma, fine, mu=best))
        for sigma in c.sigmas:
            m = max(1, round(float(alpha(sigma)) * c.p))
            mu = float(theory.optimal_mu(m / c.p, gamma, sigma)) if scaled else 1.0
            expected = theory.expected_risk(c.n, c.p, m, sigma, k=INF, mu=mu)
            method = Ensemble(m, k=(INF,), members=c.members, scale=mu)
            plan.simulate(LinearProblem(c.n, c.p, sigma), method, "risk", series, sigma, expected, "exact")
    plan.line("risk", "optimal ridge", fine, theory.optimal_ridge_risk(gamma, fine), "reference")
    return plan


def _bias_and_variance(c: SimpleNamespace) -> Plan:
    plan, fine = Plan(), members(c.k[-1], 100)
    m = round(float(theory.optimal_alpha(c.p / c.n, c.sigma)) * c.p)
    bias = partial(theory.expected_bias, c.n, c.p, m)
    variance = partial(theory.expected_variance, c.n, c.p, m, c.sigma)
    for quantity, part in (("bias", bias), ("variance", variance)):
        for design in ("independent", "balanced"):
            series, method = f"{design} members", Ensemble(m, k=c.k, design=design)
            expected, line = (part(k=k, design=design) for k in (c.k, fine))
            plan.line(quantity, series, fine, line)
            plan.simulate(LinearProblem(c.n, c.p, c.sigma), method, quantity, series, c.k, expected, "exact", quantity)
        plan.line(quantity, "k=inf", [1.0], part(k=INF), "reference")
    return plan


def _double_descent(c: SimpleNamespace) -> Plan:
    plan, problem, series = Plan(), LinearProblem(c.n, c.p, c.sigma), [f"k={k:g}" for k in c.ks]

    def risks(m: int) -> Floats:
        """Expected risk of least-squares members below the peak and of minimum-norm ones above."""
        if abs(m - c.n) <= 1:
            return np.where(np.isinf(c.ks), np.nan, np.inf)  # pairs have a finite limit, and no formula at finite n
        if m < c.n:
            return theory.expected_risk(c.n, c.p, m, c.sigma, k=c.ks)
        return theory.minimum_norm_risk(c.n, c.p, m, c.sigma, k=c.ks, n_samples=c.n)

    fine = np.arange(1, c.p + 1)
    for name, line in zip(series, np.transpose([risks(m) for m in fine]), strict=True):
        plan.line("risk", name, fine, line)
    for m in c.sizes:
        status = ["exact" if m < c.n or k == 1 else "approximate" for k in c.ks]
        plan.simulate(problem, Ensemble(m, k=c.ks, members=c.members), "risk", series, m, risks(m), status)
    plan.line("risk", "optimal ridge", [1.0], theory.optimal_ridge_risk(c.p / c.n, c.sigma), "reference")
    plan.line("risk", "columns = rows", [c.n], 0.0, "reference")
    return plan


def _unequal_covariance(c: SimpleNamespace) -> Plan:
    plan, options = Plan(), {"n": c.n, "n_subsets": c.n_subsets, "rng": 0}
    many = {"k": (INF,), "members": c.members}
    for covariance, strength in c.covariances:
        problem = LinearProblem(c.n, c.p, c.sigma, covariance, strength, coefficients="fixed")
        Sigma, beta = problem.covariance_matrix(), problem.fixed_beta()
        eigenvalues = np.linalg.eigvalsh(Sigma)
        # lines at the points' places and between them
        for share in sorted({*c.shares, *np.linspace(c.shares[0], c.shares[-1], c.line_points).round(3).tolist()}):
            penalty = _penalty_with_share(eigenvalues, c.n, share)
            chance = theory.ridge_matched_probabilities(Sigma, penalty, n=c.n)
            uniform, matched = (
                theory.covariance_risk(Sigma, beta, alpha, c.sigma, **options) for alpha in (share, chance)
            )
            ridge = theory.ridge_covariance_risk(Sigma, beta, penalty, c.sigma, n=c.n)
            same = Ensemble(sampling="bernoulli", penalty=penalty, **many)
            ways: dict[str, tuple[Method, Any]] = {
                "ensemble, uniform": (Ensemble(share, **many), uniform),
                "ensemble, matched to ridge": (same, matched),
                "ridge": (Ridge(penalty), ridge),
            }
            for series, (method, expected) in ways.items():
                plan.line(covariance, series, [share], expected)
                if share in c.shares:
                    plan.simulate(problem, method, covariance, series, share, expected, "limit")
    return plan


def _penalty_with_share(eigenvalues: NDArray[np.floating[Any]], n: int, share: float) -> float:
    """The ridge penalty at which the degrees of freedom are this share of the columns, in the limit."""
    total = share * len(eigenvalues)
    log_mu = brentq(lambda u: np.sum(eigenvalues / (eigenvalues + np.exp(u))) - total, -30, 30)
    return float(np.exp(log_mu) * (n - total))


def _dropout(c: SimpleNamespace) -> Plan:
    """Limiting risks as functions of alpha; dropout is ridge with lambda / n = (1 - alpha) / alpha, over alpha."""
    plan = Plan()
    for gamma in c.gammas:
        panel, p = f"gamma={gamma:g}", round(gamma * c.n)
        problem, top = LinearProblem(c.n, p, c.sigma), min(1.0, 1 / gamma)

        def dropout(alpha: Any, scale: Any, gamma: float = gamma) -> Floats:
            penalty = (1 - alpha) / alpha
            shrinkage = theory.alpha_from_penalty(penalty, gamma)
            return theory.scaled_risk(theory.ridge_risk(penalty, gamma, c.sigma), shrinkage, scale)

        def limits(alpha: Any, gamma: float = gamma) -> dict[str, Floats]:
            return {
                "dropout": dropout(alpha, 1 / alpha),
                "dropout times alpha": dropout(alpha, 1.0),
                "ridge, implied penalty": theory.ridge_risk(theory.penalty_from_alpha(alpha, gamma), gamma, c.sigma),
                "ensemble, k=inf": theory.limiting_risk(alpha, gamma, c.sigma),
            }

        fine = np.linspace(0.04, 0.96, 93) * top
        for series, line in limits(fine).items():
            plan.line(panel, series, fine, line)
        for share in np.linspace(0.1, 0.9, c.points) * top:
            m = round(share * p)
            alpha = m / p
            methods: dict[str, Method] = {
                "dropout": Dropout(alpha),
                "dropout times alpha": Dropout(alpha, rescale=True),
                "ridge, implied penalty": Ridge(float(c.n * theory.penalty_from_alpha(alpha, gamma))),
            }
            for series, method in methods.items():
                plan.simulate(problem, method, panel, series, alpha, limits(alpha)[series], "limit")
            ensemble = Ensemble(m, k=(INF,), members=c.members)
            expected = theory.expected_risk(c.n, p, m, c.sigma, k=INF)
            plan.simulate(problem, ensemble, panel, "ensemble, k=inf", alpha, expected, "exact")
    return plan


def _sparse(c: SimpleNamespace) -> Plan:
    plan, grid = Plan(), tuple(np.geomspace(1e-3, 1e4, 50).tolist())

    def tuned(name: str) -> Estimator:
        return Estimator(f"olsen.{name}", (("fit_intercept", False),))

    methods = {
        "adaptive ensemble": tuned("AdaptiveOLSEnsembleRegressor"),
        "ensemble, size tuned": tuned("OLSEnsembleRegressorCV"),
        "ridge": Estimator("sklearn.linear_model.RidgeCV", (("fit_intercept", False), ("alphas", grid))),
        "lasso": Estimator("sklearn.linear_model.LassoCV", (("fit_intercept", False), ("max_iter", 20_000))),
    }
    for nonzeros in c.nonzeros:
        problem = LinearProblem(c.n, c.p, c.sigma, coefficients="sparse", nonzeros=nonzeros)
        for series, method in methods.items():
            plan.simulate(problem, method, "risk", series, nonzeros)
        plan.line("risk", "coefficients known", [nonzeros], _risk_with_known_coefficients(c, problem), "reference")
    plan.line("risk", "optimal ridge", [1.0], theory.optimal_ridge_risk(c.p / c.n, c.sigma), "reference")
    return plan


def _distance_from_ridge(c: SimpleNamespace) -> Plan:
    """On real columns: fitted values of the mean of k members, from those of the ridge regression they stand for."""
    spectra, carbon = load_soil_carbon(return_X_y=True)
    X, y = spectra[: c.n, :: c.every], carbon[: c.n]
    A, b = X - X.mean(axis=0), (y - y.mean())[:, None]
    process, plan = Determinantal.from_rows(A, c.size), Plan()
    ridge = A @ process.mean_coefficients(A.T @ b)[:, 0]
    chance = {"max_features": process.probabilities}
    draws = {
        "determinantal": {"max_features": float(c.size) / A.shape[1], "sampling": "determinantal"},
        "coin flips, same probabilities": {**chance, "sampling": "bernoulli", "design": "independent"},
        "balanced, same probabilities": {**chance, "design": "balanced"},
        "balanced, uniform": {"max_features": c.size},
    }
    for series, how in draws.items():
        far = np.empty((c.repeats, len(c.k)))
        for i in range(c.repeats):
            for j, k in enumerate(c.k):
                model = OLSEnsembleRegressor(k, random_state=i, n_jobs=-1, **how).fit(X, y)
                far[i, j] = np.linalg.norm(A @ model.coef_ - ridge) / np.linalg.norm(ridge)
        for k, mean, error in zip(c.k, far.mean(axis=0), far.std(axis=0, ddof=1) / c.repeats**0.5, strict=True):
            plan.rows.append(("distance", series, "simulation", k, float(mean), float(error), c.repeats, math.nan, ""))
    return plan


def _risk_with_known_coefficients(c: SimpleNamespace, problem: LinearProblem) -> float:
    """Risk of the infinite ensemble with the best probabilities, a mean over coefficients of this kind."""
    rng, variances, risks = np.random.default_rng(0), np.ones(c.p), []
    for _ in range(c.draws):
        beta = problem.draw_coefficients(rng)
        chance = theory.optimal_probabilities(variances, beta, c.sigma, n=c.n)
        risks.append(theory.diagonal_risk(variances, beta, chance, c.sigma, n=c.n))
    return float(np.mean(risks))


PLANS: Mapping[str, Callable[[SimpleNamespace], Plan]] = {
    "figure1": _subsampling, "figure2": _risk_against_members, "figure3": _risk_against_noise, "figure4": _scaled,
    "figure5": _bias_and_variance, "figure6": _double_descent, "figure7": _unequal_covariance, "figure8": _dropout,
    "figure9": _sparse, "figure10": _distance_from_ridge,
}  # fmt: skip
