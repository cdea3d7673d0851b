"""What each figure computes: cells to simulate, the value theory expects of each, and the lines behind them.

A plan becomes one tidy table (panel, series, kind, x, mean, standard_error, trials, expected, status), and a drawing
needs nothing else. `status` says how good the expected value is: "exact" or "approximate" at this n and p, or the
"limit" of large n and p.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from .. import OLSEnsembleRegressor, theory
from ..datasets import load_soil_carbon
from ..simulation import Dropout, Ensemble, Estimator, LinearProblem, Ridge, montecarlo
from ..simulation.methods import QUANTITIES, Method
from ..subsets import Determinantal, draw_members

__all__ = ["COLUMNS", "PLANS", "Plan", "deviation"]

COLUMNS = ("panel", "series", "kind", "x", "mean", "standard_error", "trials", "expected", "status")
INF = math.inf

Floats: TypeAlias = NDArray[np.float64]
Cell: TypeAlias = tuple[LinearProblem, Method]
Point: TypeAlias = tuple[str, str, Floats, Floats, str, int]
Row: TypeAlias = tuple[str, str, str, float, float, float, int, float, str]  # as in COLUMNS


@dataclass
class Plan:
    """Cells of one figure, and what their numbers are in it."""

    cells: list[Cell] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)  # of each cell: panel, series, x, expected, status, quantity
    rows: list[Row] = field(default_factory=list)  # rows that need no simulation

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
        series: str,
        x: ArrayLike,
        expected: ArrayLike,
        status: str,
        quantity: str = "risk",
    ) -> None:
        """A cell whose values, one for each k of the method, are points at `x` expected to be `expected`."""
        x, expected = (np.broadcast_to(v, len(method.k)) for v in (x, expected))
        self.cells.append((problem, method))
        self.points.append((panel, series, x, expected, status, QUANTITIES.index(quantity)))

    def run(self, trials: int, **options: Any) -> dict[str, list[Any]]:
        """Simulate, and return the figure's table."""
        unique = list(dict.fromkeys(self.cells))  # bias and variance of one fit are one simulation
        estimates = dict(zip(unique, montecarlo.run(unique, trials=trials, **options), strict=True))
        rows = list(self.rows)
        for cell, (panel, series, x, expected, status, q) in zip(self.cells, self.points, strict=True):
            found = estimates[cell]
            for i, (mean, error) in enumerate(zip(found.mean[:, q], found.standard_error[:, q], strict=True)):
                if math.isnan(x[i]):
                    continue
                known = (float(x[i]), float(mean), float(error), trials, float(expected[i]), status)
                rows.append((panel, series, "simulation", *known))
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
    plan, ks, fine = Plan(), np.array(c.k), _whole_numbers(c.k[-1])
    for gamma in c.gammas:
        p = round(gamma * c.n)
        m = round(theory.optimal_alpha(gamma, c.sigma) * p)
        problem = LinearProblem(c.n, p, c.sigma)
        for rows, name in ((c.n, "all rows"), (round(c.row_factor * m), "few rows")):
            series = f"gamma={gamma:g}, {name}"
            expected = theory.expected_risk(c.n, p, m, c.sigma, k=ks, n_samples=rows)
            plan.line("risk", series, fine, theory.expected_risk(c.n, p, m, c.sigma, k=fine, n_samples=rows))
            method = Ensemble(m, 1.0 if rows == c.n else rows, k=c.k)
            plan.simulate(problem, method, "risk", series, ks, expected, "exact" if rows == c.n else "approximate")
        repelling = Ensemble(m, k=c.k, sampling="determinantal")
        plan.simulate(problem, repelling, "risk", f"gamma={gamma:g}, determinantal", ks, np.nan, "")
        plan.line("risk", f"gamma={gamma:g}, ridge", [1.0], theory.optimal_ridge_risk(gamma, c.sigma), "reference")
    return plan


def _whole_numbers(top: int) -> Floats:
    return np.unique(np.geomspace(1, top, 100).round())


def _risk_against_noise(c: SimpleNamespace) -> Plan:
    plan, gamma = Plan(), c.p / c.n
    fine = np.geomspace(c.low, c.high, 61)
    for panel in ("alpha_*", "alpha of k"):
        for k in c.ks:
            rule_k = INF if panel == "alpha_*" else k
            plan.line(panel, f"k={k}", fine, [_smooth_risk_at_best(c, gamma, sigma, rule_k, k) for sigma in fine])
        plan.line(panel, "ridge", fine, theory.optimal_ridge_risk(gamma, fine), "reference")
    for sigma in c.sigmas:
        problem = LinearProblem(c.n, c.p, sigma)
        m = _risk_at_best(c, gamma, sigma, INF, 1)[0]
        every = Ensemble(m, k=c.ks)  # one solve serves all k
        expected = theory.expected_risk(c.n, c.p, m, sigma, k=np.array(c.ks))
        for i, k in enumerate(c.ks):
            plan.simulate(problem, every, "alpha_*", f"k={k}", _only(i, sigma, len(c.ks)), expected, "exact")
            m, risk = _risk_at_best(c, gamma, sigma, k, k)
            plan.simulate(problem, Ensemble(m, k=(k,)), "alpha of k", f"k={k}", sigma, risk, "exact")
    return plan


def _only(i: int, value: float, count: int) -> Floats:
    """`value` at place i, nan elsewhere: of a shared cell, this series shows one k."""
    return np.where(np.arange(count) == i, value, np.nan)


def _smooth_risk_at_best(c: SimpleNamespace, gamma: float, sigma: float, rule_k: float, k: float) -> float:
    """Between whole numbers of columns the risk is interpolated; otherwise the line would be a saw."""
    size = max(1.0, float(theory.optimal_alpha(gamma, sigma, k=rule_k)) * c.p)
    low, high = theory.expected_risk(c.n, c.p, np.array([np.floor(size), np.floor(size) + 1]), sigma, k=k)
    return float(low ** (1 - size % 1) * high ** (size % 1))


def _risk_at_best(c: SimpleNamespace, gamma: float, sigma: float, rule_k: float, k: float) -> tuple[int, float]:
    m = max(1, round(float(theory.optimal_alpha(gamma, sigma, k=rule_k)) * c.p))
    return m, float(theory.expected_risk(c.n, c.p, m, sigma, k=k))


def _scaled(c: SimpleNamespace) -> Plan:
    plan, gamma = Plan(), c.p / c.n
    fine = np.geomspace(c.low, c.high, 121)
    choices: dict[str, Callable[[float | Floats], Floats]] = {
        "half of alpha_*": lambda sigma: theory.optimal_alpha(gamma, sigma) / 2,
        "alpha = 1/2": lambda sigma: np.full(np.shape(sigma), c.fixed_alpha),
    }
    for name, alpha in choices.items():
        for scaled in (False, True):
            series = f"{name}, {'best mu' if scaled else 'mu = 1'}"
            mu = theory.optimal_mu(alpha(fine), gamma, fine) if scaled else 1.0
            plan.line("risk", series, fine, theory.limiting_risk(alpha(fine), gamma, fine, mu=mu))
            for sigma in c.sigmas:
                m = max(1, round(float(alpha(sigma)) * c.p))
                mu = float(theory.optimal_mu(m / c.p, gamma, sigma)) if scaled else 1.0
                expected = theory.expected_risk(c.n, c.p, m, sigma, k=INF, mu=mu)
                method = Ensemble(m, k=(INF,), members=c.members, scale=mu)
                plan.simulate(LinearProblem(c.n, c.p, sigma), method, "risk", series, sigma, expected, "exact")
    plan.line("risk", "ridge", fine, theory.optimal_ridge_risk(gamma, fine), "reference")
    return plan


def _bias_and_variance(c: SimpleNamespace) -> Plan:
    plan, ks, fine = Plan(), np.array(c.k), _whole_numbers(c.k[-1])
    m = round(theory.optimal_alpha(c.p / c.n, c.sigma) * c.p)
    problem = LinearProblem(c.n, c.p, c.sigma)
    for quantity in ("bias", "variance"):
        for design in ("independent", "balanced"):
            expected = _part(c, m, ks, quantity, design)
            plan.line(quantity, design, fine, _part(c, m, fine, quantity, design))
            method = Ensemble(m, k=c.k, design=design)
            plan.simulate(problem, method, quantity, design, ks, expected, "exact", quantity)
        plan.line(quantity, "infinite ensemble", [1.0], _part(c, m, INF, quantity, "independent"), "reference")
    return plan


def _part(c: SimpleNamespace, m: int, k: ArrayLike, quantity: str, design: str) -> Floats:
    if quantity == "bias":
        return theory.expected_bias(c.n, c.p, m, k=k, design=design)
    return theory.expected_variance(c.n, c.p, m, c.sigma, k=k, design=design)


def _double_descent(c: SimpleNamespace) -> Plan:
    plan, problem, ks = Plan(), LinearProblem(c.n, c.p, c.sigma), np.array(c.ks)
    fine = np.arange(1, c.p + 1)
    lines = np.array([_any_size_risk(c, m, ks) for m in fine])
    for i, k in enumerate(c.ks):
        plan.line("risk", f"k={k:g}", fine, lines[:, i])
        for m in c.sizes:
            method = Ensemble(m, k=c.ks, members=c.members)
            status = "exact" if m < c.n or k == 1 else "approximate"
            expected = _any_size_risk(c, m, ks)
            plan.simulate(problem, method, "risk", f"k={k:g}", _only(i, m, len(ks)), expected, status)
    plan.line("risk", "ridge", [1.0], theory.optimal_ridge_risk(c.p / c.n, c.sigma), "reference")
    plan.line("risk", "peak", [c.n], 0.0, "reference")
    return plan


def _any_size_risk(c: SimpleNamespace, m: int, ks: Floats) -> Floats:
    """Expected risk of least-squares members below the peak and of minimum-norm ones above."""
    if abs(m - c.n) <= 1:
        return np.where(np.isinf(ks), np.nan, np.inf)  # pairs have a finite limit here, and no formula at finite n
    if m < c.n:
        return theory.expected_risk(c.n, c.p, m, c.sigma, k=ks)
    return theory.minimum_norm_risk(c.n, c.p, m, c.sigma, k=ks, n_samples=c.n)


def _unequal_covariance(c: SimpleNamespace) -> Plan:
    plan = Plan()
    for covariance, strength in c.covariances:
        problem = LinearProblem(c.n, c.p, c.sigma, covariance, strength, coefficients="fixed")
        eigenvalues = np.linalg.eigvalsh(problem.covariance_matrix())
        # lines at the points' places and between them
        for share in sorted({*c.shares, *np.linspace(c.shares[0], c.shares[-1], c.line_points).round(3).tolist()}):
            penalty = _penalty_with_share(eigenvalues, c.n, share)
            methods: dict[str, Method] = {
                "uniform": Ensemble(share, k=(INF,), members=c.members),
                "matched to ridge": Ensemble(k=(INF,), members=c.members, sampling="bernoulli", penalty=penalty),
                "ridge": Ridge(penalty),
            }
            for series, expected in _three_risks(c, problem, share, penalty).items():
                plan.line(covariance, series, [share], expected)
                if share in c.shares:
                    plan.simulate(problem, methods[series], covariance, series, share, expected, "limit")
    return plan


def _three_risks(c: SimpleNamespace, problem: LinearProblem, share: float, penalty: float) -> dict[str, float]:
    Sigma, beta = problem.covariance_matrix(), problem.fixed_beta()
    options = {"n": c.n, "n_subsets": c.n_subsets, "rng": 0}
    chance = theory.ridge_matched_probabilities(Sigma, penalty, n=c.n)
    return {
        "uniform": float(theory.covariance_risk(Sigma, beta, share, c.sigma, **options)),
        "matched to ridge": float(theory.covariance_risk(Sigma, beta, chance, c.sigma, **options)),
        "ridge": float(theory.ridge_covariance_risk(Sigma, beta, penalty, c.sigma, n=c.n)),
    }


def _penalty_with_share(eigenvalues: NDArray[np.floating[Any]], n: int, share: float) -> float:
    """The ridge penalty at which the degrees of freedom are this share of the columns, in the limit."""
    total = share * len(eigenvalues)
    log_mu = brentq(lambda u: np.sum(eigenvalues / (eigenvalues + np.exp(u))) - total, -30, 30)
    return float(np.exp(log_mu) * (n - total))


def _dropout(c: SimpleNamespace) -> Plan:
    plan = Plan()
    for gamma in c.gammas:
        panel, p = f"gamma = {gamma:g}", round(gamma * c.n)
        problem, top = LinearProblem(c.n, p, c.sigma), min(1.0, 1 / gamma)
        fine = np.linspace(0.04, 0.96, 93) * top
        for series, risk in _side_by_side(gamma, c.sigma).items():
            plan.line(panel, series, fine, risk(fine))
        for alpha in np.linspace(0.1, 0.9, c.points) * top:
            m = round(alpha * p)
            alpha = m / p
            methods: dict[str, Method] = {
                "ensemble": Ensemble(m, k=(INF,), members=c.members),
                "ridge": Ridge(float(c.n * theory.penalty_from_alpha(alpha, gamma))),
                "dropout": Dropout(alpha),
                "dropout times alpha": Dropout(alpha, rescale=True),
            }
            expected = {series: float(risk(alpha)) for series, risk in _side_by_side(gamma, c.sigma).items()}
            expected["ensemble"] = float(theory.expected_risk(c.n, p, m, c.sigma, k=INF))
            for series, method in methods.items():
                status = "exact" if series == "ensemble" else "limit"
                plan.simulate(problem, method, panel, series, alpha, expected[series], status)
    return plan


def _side_by_side(gamma: float, sigma: float) -> dict[str, Callable[[float | Floats], Floats]]:
    """Limiting risks as functions of alpha; dropout is ridge with lambda / n = (1 - alpha) / alpha, over alpha."""

    def dropout(alpha: float | Floats, scale: float | Floats) -> Floats:
        penalty = (1 - alpha) / alpha
        shrinkage = theory.alpha_from_penalty(penalty, gamma)
        return theory.scaled_risk(theory.ridge_risk(penalty, gamma, sigma), shrinkage, scale)

    return {
        "dropout": lambda alpha: dropout(alpha, 1 / alpha),
        "dropout times alpha": lambda alpha: dropout(alpha, 1.0),
        "ridge": lambda alpha: theory.ridge_risk(theory.penalty_from_alpha(alpha, gamma), gamma, sigma),
        "ensemble": lambda alpha: theory.limiting_risk(alpha, gamma, sigma),
    }


def _sparse(c: SimpleNamespace) -> Plan:
    plan, grid = Plan(), tuple(np.geomspace(1e-3, 1e4, 50).tolist())

    def tuned(inclusion: str) -> Estimator:
        return Estimator("olsen.OLSEnsembleRegressorCV", (("fit_intercept", False), ("inclusion", inclusion)))

    methods = {
        "auto": tuned("auto"),
        "uniform": tuned("uniform"),
        "ridge": Estimator("sklearn.linear_model.RidgeCV", (("fit_intercept", False), ("alphas", grid))),
        "lasso": Estimator("sklearn.linear_model.LassoCV", (("fit_intercept", False), ("max_iter", 20_000))),
    }
    for nonzeros in c.nonzeros:
        problem = LinearProblem(c.n, c.p, c.sigma, coefficients="sparse", nonzeros=nonzeros)
        for series, method in methods.items():
            plan.simulate(problem, method, "risk", series, nonzeros, np.nan, "")
        plan.line("risk", "known coefficients", [nonzeros], _risk_with_known_coefficients(c, problem), "reference")
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


PLANS: Mapping[str, Callable[[SimpleNamespace], Plan]] = MappingProxyType({
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
})  # fmt: skip
