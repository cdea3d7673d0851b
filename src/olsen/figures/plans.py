"""Computations of each figure: cells to simulate, the expected value of each cell in theory, and
theoretical lines.

A plan becomes one tidy table (panel, series, kind, x, mean, standard_error, trials, expected,
status), from which the figure is drawn. `status` is the accuracy of the expected value: "exact" or
"approximate" at this n and p, the "limit" of large n and p, or "extrapolated" to rows that are not
Gaussian.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import inf, isfinite, nan
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from .. import OLSEnsembleRegressor, theory
from ..datasets import load_soil_carbon
from ..simulation import Dropout, Ensemble, Estimator, LinearProblem, Ridge, montecarlo
from ..simulation.methods import QUANTITIES, ErrorEstimate, Method
from ..simulation.problems import COEFFICIENTS, COVARIANCES, ROWS
from ..subsets import Determinantal, draw_members
from .recipes import numbers_of_members

Floats: TypeAlias = NDArray[np.float64]


class Cell(NamedTuple):
    """What is simulated."""

    problem: LinearProblem
    method: Method


class Row(NamedTuple):
    """A row of the table of a figure."""

    panel: str
    series: str
    kind: str
    x: float
    mean: float
    standard_error: float = nan
    trials: int = 0
    expected: float = nan
    status: str = ""


class Point(NamedTuple):
    """A row whose mean and error are to be simulated."""

    cell: Cell
    k_index: int  # into the numbers of members of the method
    quantity_index: int  # into QUANTITIES
    row: Row
    unit: float  # that mean and error are divided by
    uncertainty: float  # standard error of theory, in this unit


@dataclass
class Plan:
    """Points and lines of one figure, and the simulations of the points."""

    points: list[Point] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)  # without simulation

    def line(
        self, panel: str, series: str, x: ArrayLike, y: ArrayLike, *, kind: str = "theory"
    ) -> None:
        """Add a curve."""
        for position, value in np.broadcast(x, y):
            if not np.isnan(value):
                self.rows.append(Row(panel, series, kind, float(position), float(value)))

    def level(self, panel: str, series: str, y: ArrayLike, *, x: float = 1.0) -> None:
        """Add a single value to be drawn across the panel."""
        self.line(panel, series, x, y, kind="reference")

    def simulate(
        self,
        cell: Cell,
        panel: str | list[str],
        series: str | list[str],
        x: ArrayLike,
        *,
        expected: ArrayLike = nan,
        status: str | list[str] = "",
        quantity: str = "risk",
        unit: ArrayLike = 1.0,
        uncertainty: ArrayLike = 0.0,
    ) -> None:
        """Add a point for each k of the method; all but cell and quantity are common values or one
        value per k.
        """
        quantity_index = QUANTITIES.index(quantity)
        texts = np.broadcast(panel, series, status, cell.method.k)
        numbers = np.broadcast(x, expected, unit, uncertainty, cell.method.k)
        for k_index, (text, number) in enumerate(zip(texts, numbers, strict=True)):
            place, name, accuracy = (str(value) for value in text[:3])
            position, value, size, error = (float(value) for value in number[:4])
            row = Row(
                place, name, "simulation", position, mean=nan, expected=value, status=accuracy
            )
            self.points.append(Point(cell, k_index, quantity_index, row, size, error))

    def run(self, trials: int, **options: Any) -> dict[str, list[Any]]:
        """Simulate, and return the table of the figure."""
        # bias and variance come from one simulation
        cells = list(dict.fromkeys(point.cell for point in self.points))
        estimates = dict(zip(cells, montecarlo.run(cells, trials=trials, **options), strict=True))
        rows = list(self.rows)
        for point in self.points:
            estimate = estimates[point.cell]
            index = point.k_index, point.quantity_index
            mean = float(estimate.mean[index]) / point.unit
            error = float(estimate.standard_error[index]) / point.unit
            error = float(np.hypot(error, point.uncertainty))
            rows.append(point.row._replace(mean=mean, standard_error=error, trials=trials))
        return {name: [row[i] for row in rows] for i, name in enumerate(Row._fields)}


def deviation(table: Mapping[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """Largest distance of simulation from theory in standard errors, by the status of the theory.

    Examples
    --------
    >>> from olsen.figures import deviation
    >>> deviation(
    ...     {
    ...         "kind": ["simulation"],
    ...         "mean": [1.2],
    ...         "expected": [1.0],
    ...         "standard_error": [0.1],
    ...         "status": ["exact"],
    ...         "series": ["one"],
    ...         "x": [3.0],
    ...     }
    ... )["exact"]
    {'largest': 2.0, 'points': 1, 'series': 'one', 'x': 3.0}
    """
    deviations: dict[str, dict[str, Any]] = {}
    names = ("kind", "mean", "expected", "standard_error", "status", "series", "x")
    rows = zip(*(table[name] for name in names), strict=True)
    for kind, mean, expected, error, status, series, x in rows:
        if kind != "simulation" or not (isfinite(expected) and error > 0):
            continue
        distance = round(abs(mean - expected) / error, 10)
        entry = deviations.setdefault(status, {"largest": -1.0, "points": 0})
        entry["points"] += 1
        if distance > entry["largest"]:
            entry.update(largest=distance, series=series, x=x)
    return deviations


def plan_figure(name: str, constants: Mapping[str, Any]) -> Plan:
    """The plan of a figure; `constants` are those of its recipe at one scale."""
    plan = Plan()
    arguments = {key: value for key, value in constants.items() if key != "trials"}
    PLANS[name](plan, **arguments)
    return plan


def _subsampling(plan: Plan, *, n: int, p: int, n_features: int, n_samples: int, seed: int) -> None:
    """Figure 1: the rows and columns of one member."""
    features, samples = draw_members(
        n, p, 1, rng=seed, max_features=n_features, max_samples=n_samples
    )
    assert samples is not None
    plan.line("member", "shape", [n, p], [0.0, 1.0], kind="picture")
    plan.line("member", "rows", samples[0], 0.0, kind="picture")
    plan.line("member", "columns", features[0], 0.0, kind="picture")


def _risk_against_members(
    plan: Plan,
    *,
    n: int,
    sigma: float,
    gammas: tuple[float, ...],
    row_factor: float,
    k: tuple[int, ...],
) -> None:
    """Risk against the number of members: all rows, few rows."""
    fine = numbers_of_members(k[-1], 100)
    for gamma in gammas:
        name = f"gamma={gamma:g}"
        p = round(gamma * n)
        m = round(float(theory.optimal_alpha(gamma, sigma)) * p)
        problem = LinearProblem(n, p, sigma)
        few = round(row_factor * m)
        few_rows_status = ["exact" if members == 1 else "approximate" for members in k]
        kinds = (("all rows", n, 1.0, "exact"), ("few rows", few, few, few_rows_status))
        for rows, n_samples, max_samples, status in kinds:
            risk = partial(theory.expected_risk, n, p, m, sigma, n_samples=n_samples)
            series = f"{name}, {rows}"
            plan.line("risk", series, fine, risk(k=fine))
            cell = Cell(problem, Ensemble(m, max_samples, k=k))
            plan.simulate(cell, "risk", series, k, expected=risk(k=k), status=status)
        plan.level("risk", f"{name}, optimal ridge", theory.optimal_ridge_risk(gamma, sigma))


def _risk_against_noise(
    plan: Plan,
    *,
    n: int,
    p: int,
    ks: tuple[int, ...],
    low: float,
    high: float,
    sigmas: tuple[float, ...],
) -> None:
    """Risk against the noise, at the best size for infinitely many members and for k members."""
    gamma = p / n
    fine = np.geomspace(low, high, 61)

    def best_size(sigma: float, k: float) -> float:
        alpha = float(theory.optimal_alpha(gamma, sigma, k=k))
        return max(1.0, alpha * p)

    def smooth_risk(size: float, sigma: float, k: float) -> float:
        """Risk interpolated between whole numbers of columns, without which the line would be a
        saw.
        """
        whole = np.floor(size)
        below, above = theory.expected_risk(n, p, [whole, whole + 1], sigma, k=k)
        weight = size % 1
        return float(below ** (1 - weight) * above**weight)

    ridge_risk = theory.optimal_ridge_risk(gamma, fine)
    for panel in ("alpha_*", "alpha of k"):
        for k in ks:
            k_of_size = inf if panel == "alpha_*" else k
            risks = [smooth_risk(best_size(sigma, k_of_size), sigma, k) for sigma in fine]
            plan.line(panel, f"k={k}", fine, risks)
        plan.line(panel, "optimal ridge", fine, ridge_risk, kind="reference")
    names = [f"k={k}" for k in ks]
    for sigma in sigmas:
        problem = LinearProblem(n, p, sigma)
        m = round(best_size(sigma, inf))
        expected = theory.expected_risk(n, p, m, sigma, k=ks)
        cell = Cell(problem, Ensemble(m, k=ks))
        plan.simulate(cell, "alpha_*", names, sigma, expected=expected, status="exact")
        for k, name in zip(ks, names, strict=True):
            m = round(best_size(sigma, k))
            expected = theory.expected_risk(n, p, m, sigma, k=k)
            cell = Cell(problem, Ensemble(m, k=(k,)))
            plan.simulate(cell, "alpha of k", name, sigma, expected=expected, status="exact")


def _scaled(
    plan: Plan,
    *,
    n: int,
    p: int,
    fixed_alpha: float,
    low: float,
    high: float,
    members: int,
    sigmas: tuple[float, ...],
) -> None:
    """Risk of the large ensemble with and without the best scale."""
    gamma = p / n
    fine = np.geomspace(low, high, 121)
    choices: dict[str, Callable[[Floats], Floats]] = {
        "alpha_*/2": lambda sigma: theory.optimal_alpha(gamma, sigma) / 2,
        "alpha=1/2": lambda sigma: np.full(sigma.shape, fixed_alpha),
    }
    for (name, alpha_at), is_scaled in product(choices.items(), (False, True)):
        series = f"{name}, best mu" if is_scaled else f"{name}, mu=1"
        alpha = alpha_at(fine)
        mu = theory.optimal_mu(alpha, gamma, fine) if is_scaled else 1.0
        plan.line("risk", series, fine, theory.limiting_risk(alpha, gamma, fine, mu=mu))
        for sigma in sigmas:
            m = max(1, round(float(alpha_at(np.array(sigma))) * p))
            scale = float(theory.optimal_mu(m / p, gamma, sigma)) if is_scaled else 1.0
            expected = theory.expected_risk(n, p, m, sigma, k=inf, mu=scale)
            method = Ensemble(m, k=(inf,), members=members, scale=scale)
            cell = Cell(LinearProblem(n, p, sigma), method)
            plan.simulate(cell, "risk", series, sigma, expected=expected, status="exact")
    ridge_risk = theory.optimal_ridge_risk(gamma, fine)
    plan.line("risk", "optimal ridge", fine, ridge_risk, kind="reference")


def _bias_and_variance(plan: Plan, *, n: int, p: int, sigma: float, k: tuple[int, ...]) -> None:
    """Bias and variance against the number of members, for independent and balanced designs."""
    fine = numbers_of_members(k[-1], 100)
    problem = LinearProblem(n, p, sigma)
    m = round(float(theory.optimal_alpha(p / n, sigma)) * p)
    expectations = {
        "bias": partial(theory.expected_bias, n, p, m),
        "variance": partial(theory.expected_variance, n, p, m, sigma),
    }
    for quantity, expectation in expectations.items():
        for design in ("independent", "balanced"):
            series = f"{design} members"
            plan.line(quantity, series, fine, expectation(k=fine, design=design))
            plan.simulate(
                Cell(problem, Ensemble(m, k=k, design=design)),
                quantity,
                series,
                k,
                expected=expectation(k=k, design=design),
                status="exact",
                quantity=quantity,
            )
        plan.level(quantity, "k=inf", expectation(k=inf))


def _double_descent(
    plan: Plan,
    *,
    n: int,
    p: int,
    sigma: float,
    ks: tuple[float, ...],
    members: int,
    sizes: tuple[int, ...],
) -> None:
    """Risk against the size of members, through the interpolation peak."""

    def risks(m: int) -> Floats:
        """Expected risk of least-squares members below the peak and of minimum-norm members above."""
        if abs(m - n) <= 1:
            # pairs have a finite limit but no formula at finite n
            return np.where(np.isinf(ks), nan, inf)
        if m < n:
            return theory.expected_risk(n, p, m, sigma, k=ks)
        return theory.minimum_norm_risk(n, p, m, sigma, k=ks, n_samples=n)

    problem = LinearProblem(n, p, sigma)
    series = [f"k={k:g}" for k in ks]
    fine = np.arange(1, p + 1)
    lines = np.transpose([risks(m) for m in fine.tolist()])
    for name, line in zip(series, lines, strict=True):
        plan.line("risk", name, fine, line)
    for m in sizes:
        status = ["exact" if m < n or k == 1 else "approximate" for k in ks]
        cell = Cell(problem, Ensemble(m, k=ks, members=members))
        plan.simulate(cell, "risk", series, m, expected=risks(m), status=status)
    plan.level("risk", "optimal ridge", theory.optimal_ridge_risk(p / n, sigma))
    plan.level("risk", "columns = rows", 0.0, x=n)


def _unequal_covariance(
    plan: Plan,
    *,
    n: int,
    p: int,
    sigma: float,
    covariances: tuple[tuple[str, float], ...],
    members: int,
    fractions: tuple[float, ...],
    line_points: int,
    n_subsets: int,
) -> None:
    """Risk of uniform and ridge-matched sampling under unequal covariance."""
    between = np.linspace(fractions[0], fractions[-1], line_points).round(3).tolist()
    for covariance, strength in covariances:
        problem = LinearProblem(n, p, sigma, covariance, strength=strength, coefficients="fixed")
        Sigma = problem.covariance_matrix()
        beta = problem.fixed_beta()
        eigenvalues = np.linalg.eigvalsh(Sigma)
        risk = partial(_risk_of_large_ensemble, problem, n_subsets=n_subsets)
        for fraction in sorted({*fractions, *between}):
            penalty = _penalty_of_degrees(eigenvalues, n, fraction)
            probabilities = theory.ridge_matched_probabilities(Sigma, penalty, n=n)
            uniform = Ensemble(fraction, k=(inf,), members=members)
            matched = Ensemble(sampling="bernoulli", penalty=penalty, k=(inf,), members=members)
            ridge_risk = theory.ridge_covariance_risk(Sigma, beta, penalty, sigma, n=n)
            methods: dict[str, tuple[Method, Any]] = {
                "ensemble, uniform": (uniform, risk(fraction)),
                "ensemble, matched to ridge": (matched, risk(probabilities)),
                "ridge": (Ridge(penalty), ridge_risk),
            }
            for series, (method, expected) in methods.items():
                plan.line(covariance, series, fraction, expected)
                if fraction in fractions:
                    cell = Cell(problem, method)
                    plan.simulate(
                        cell, covariance, series, fraction, expected=expected, status="limit"
                    )


def _risk_of_large_ensemble(
    problem: LinearProblem, probabilities: ArrayLike, *, n_subsets: int
) -> Floats:
    """The limiting risk of infinitely many members, in closed form on uncorrelated columns."""
    Sigma = problem.covariance_matrix()
    beta = problem.fixed_beta()
    n = problem.n
    if problem.covariance == "diagonal":
        each = np.broadcast_to(probabilities, beta.shape)
        return theory.diagonal_risk(np.diag(Sigma), beta, each, sigma=problem.sigma, n=n)
    options: dict[str, Any] = {"n": n, "n_subsets": n_subsets, "rng": 0}
    return np.asarray(theory.covariance_risk(Sigma, beta, probabilities, problem.sigma, **options))


def _penalty_of_degrees(eigenvalues: NDArray[np.floating[Any]], n: int, fraction: float) -> float:
    """The ridge penalty at which the degrees of freedom are this fraction of the columns, in the
    limit.
    """
    degrees = fraction * len(eigenvalues)

    def excess(log_mu: float) -> float:
        return float(np.sum(eigenvalues / (eigenvalues + np.exp(log_mu))) - degrees)

    mu = np.exp(brentq(excess, -30, 30))
    return float(mu * (n - degrees))


def _dropout(
    plan: Plan, *, n: int, sigma: float, gammas: tuple[float, ...], members: int, points: int
) -> None:
    """Limiting risks as functions of alpha; dropout is ridge with lambda / n = (1 - alpha) / alpha,
    over alpha.
    """

    def dropout_risk(alpha: Any, gamma: float, mu: Any) -> Floats:
        lam = (1 - alpha) / alpha
        delta = theory.alpha_from_penalty(lam, gamma)
        return theory.scaled_risk(theory.ridge_risk(lam, gamma, sigma), delta, mu)

    def limits(alpha: Any, gamma: float) -> dict[str, Floats]:
        lam = theory.penalty_from_alpha(alpha, gamma)
        return {
            "dropout": dropout_risk(alpha, gamma, mu=1 / alpha),
            "dropout times alpha": dropout_risk(alpha, gamma, mu=1.0),
            "ridge, implied penalty": theory.ridge_risk(lam, gamma, sigma),
            "ensemble, k=inf": theory.limiting_risk(alpha, gamma, sigma),
        }

    for gamma in gammas:
        panel = f"gamma={gamma:g}"
        p = round(gamma * n)
        problem = LinearProblem(n, p, sigma)
        max_alpha = min(1.0, 1 / gamma)
        fine = np.linspace(0.04, 0.96, 93) * max_alpha
        for series, line in limits(fine, gamma).items():
            plan.line(panel, series, fine, line)
        for target_alpha in np.linspace(0.1, 0.9, points) * max_alpha:
            m = round(target_alpha * p)
            alpha = m / p
            penalty = float(n * theory.penalty_from_alpha(alpha, gamma))
            methods: dict[str, Method] = {
                "dropout": Dropout(alpha),
                "dropout times alpha": Dropout(alpha, rescale=True),
                "ridge, implied penalty": Ridge(penalty),
                "ensemble, k=inf": Ensemble(m, k=(inf,), members=members),
            }
            expected = limits(alpha, gamma)
            expected["ensemble, k=inf"] = theory.expected_risk(n, p, m, sigma, k=inf)
            for series, method in methods.items():
                status = "exact" if series == "ensemble, k=inf" else "limit"
                cell = Cell(problem, method)
                plan.simulate(cell, panel, series, alpha, expected=expected[series], status=status)


def _sparse(
    plan: Plan, *, n: int, p: int, sigma: float, draws: int, nonzeros: tuple[int, ...]
) -> None:
    """Risk of tuned estimators against the number of coefficients that are not zero."""
    plain = ("fit_intercept", False)
    penalties = tuple(np.geomspace(1e-3, 1e4, 50).tolist())
    methods = {
        "adaptive ensemble": Estimator("olsen.AdaptiveOLSEnsembleRegressor", (plain,)),
        "ensemble, size tuned": Estimator("olsen.OLSEnsembleRegressorCV", (plain,)),
        "ridge": Estimator("sklearn.linear_model.RidgeCV", (plain, ("alphas", penalties))),
        "lasso": Estimator("sklearn.linear_model.LassoCV", (plain, ("max_iter", 20_000))),
    }
    for count in nonzeros:
        problem = LinearProblem(n, p, sigma, coefficients="sparse", nonzeros=count)
        for series, method in methods.items():
            plan.simulate(Cell(problem, method), "risk", series, count)
        risk = _risk_with_known_coefficients(problem, draws)
        plan.level("risk", "coefficients known", risk, x=count)
    plan.level("risk", "optimal ridge", theory.optimal_ridge_risk(p / n, sigma))


def _risk_with_known_coefficients(problem: LinearProblem, draws: int) -> float:
    """Risk of the infinite ensemble with the best probabilities, averaged over drawn coefficients."""
    rng = np.random.default_rng(0)
    variances = np.ones(problem.p)
    sigma = problem.sigma
    n = problem.n
    risks = []
    for _ in range(draws):
        beta = problem.draw_coefficients(rng)
        probabilities = theory.optimal_probabilities(variances, beta, sigma, n=n)
        risks.append(theory.diagonal_risk(variances, beta, probabilities, sigma, n=n))
    return float(np.mean(risks))


def _distance_from_ridge(
    plan: Plan, *, n: int, every: int, size: int, repeats: int, k: tuple[int, ...]
) -> None:
    """Relative distance, on real columns, of the fitted values of k members from the equivalent
    ridge regression.
    """
    spectra, carbon = load_soil_carbon(return_X_y=True)
    X = spectra[:n, ::every]
    y = carbon[:n]
    A = X - X.mean(axis=0)
    b = y - y.mean()
    process = Determinantal.from_rows(A, size)
    ridge = A @ process.mean_coefficients(A.T @ b[:, None])[:, 0]
    fraction = size / A.shape[1]
    probabilities = {"max_features": process.probabilities}
    settings_of_series: dict[str, dict[str, Any]] = {
        "determinantal": {"max_features": fraction, "sampling": "determinantal"},
        "coin flips, same probabilities": {
            **probabilities,
            "sampling": "bernoulli",
            "design": "independent",
        },
        "balanced, same probabilities": {**probabilities, "design": "balanced"},
        "balanced, uniform": {"max_features": size},
    }
    for series, settings in settings_of_series.items():
        for count in k:
            distances = []
            for seed in range(repeats):
                model = OLSEnsembleRegressor(count, random_state=seed, n_jobs=-1, **settings)
                fitted = A @ model.fit(X, y).coef_
                distances.append(np.linalg.norm(fitted - ridge) / np.linalg.norm(ridge))
            mean = float(np.mean(distances))
            error = float(np.std(distances, ddof=1) / repeats**0.5)
            row = Row("distance", series, "simulation", count, mean)
            row = row._replace(standard_error=error, trials=repeats)
            plan.rows.append(row)


def _universality(
    plan: Plan, *, n: int, p: int, n_features: int, sigma: float, members: int, n_subsets: int
) -> None:
    """Simulation over theory for rows, covariances and coefficients, and estimated over true error.

    The place of a point is the number of its distribution of rows or of its coefficients, and beside
    it a place for each covariance.
    """
    offsets = dict(zip(COVARIANCES, np.linspace(-0.27, 0.27, len(COVARIANCES)), strict=True))

    def compare(panels: Mapping[str, float], place: float, covariance: str, **other: str) -> None:
        """Add the points of one draw of the coefficients, one panel for each number of members."""
        settings: dict[str, Any] = {"rows": "gaussian", "covariance": covariance, **other}
        beta = LinearProblem(n, p, **settings).draw_coefficients(0)
        problem = LinearProblem(n, p, sigma, **(settings | {"coefficients": beta}))
        Sigma = problem.covariance_matrix()
        ks = tuple(panels.values())
        options: dict[str, Any] = {"n": n, "k": ks, "n_subsets": n_subsets, "rng": 0}
        risk, error = theory.covariance_risk(
            Sigma, beta, n_features / p, sigma, return_std=True, **options
        )
        plan.simulate(
            Cell(problem, Ensemble(n_features, k=ks, members=members)),
            list(panels),
            f"{covariance}, {', '.join(other.values())}",
            place,
            expected=1.0,
            status=status_of_rows[settings["rows"]],
            unit=risk,
            uncertainty=error / risk,
        )

    status_of_rows = dict.fromkeys(ROWS, "extrapolated") | {"gaussian": "limit"}
    for covariance, offset in offsets.items():
        for place, rows in enumerate(ROWS):
            panels = {"one member": 1.0, "infinitely many members": inf}
            compare(panels, place + offset, covariance, rows=rows)
        for place, coefficients in enumerate(COEFFICIENTS):
            compare({"coefficients": inf}, place + offset, covariance, coefficients=coefficients)
    for place, rows in enumerate(ROWS):
        problem = LinearProblem(n, p, sigma, rows=rows)
        for criterion, name, offset in ((None, "leave-one-out", -0.1), ("gcv", "GCV", 0.1)):
            method = ErrorEstimate(criterion, n_features, members, noise_variance=sigma**2)
            plan.simulate(
                Cell(problem, method),
                "error",
                f"{name}, {rows}",
                place + offset,
                expected=1.0,
                status=status_of_rows[rows],
            )
    for panel in ("one member", "infinitely many members", "coefficients", "error"):
        plan.line(panel, "agreement", [-0.5, len(ROWS) - 0.5], 1.0)


PLANS: Mapping[str, Callable[..., None]] = {
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
    "figure11": _universality,
}
