"""A user's script, as one would write it; mypy checks it strictly, together with the source."""

import numpy as np
from numpy.typing import NDArray

from olsen import (
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    equivalence,
    member_coefficients,
    simulation,
    subsets,
    theory,
)
from olsen.datasets import load_soil_carbon

Vector = NDArray[np.float64]


def inside(interval: Vector, y: Vector) -> float:
    """Share of the targets that fall into their intervals."""
    return float(np.mean((interval[:, 0] <= y) & (y <= interval[:, 1])))


def columns_per_member(p: int, gamma: float, sigma: float) -> int:
    """Columns that a large ensemble should give its members."""
    return max(1, round(float(theory.optimal_alpha(gamma, sigma)) * p))


def tune(X: Vector, y: Vector) -> OLSEnsembleRegressorCV:
    model = OLSEnsembleRegressorCV(random_state=0, n_jobs=-1).fit(X, y)
    sizes = model.cv_results_["param_max_features"]
    errors = model.risk_curve(k=100)
    print(
        f"{model.max_features_} columns of {sizes.min()} to {sizes.max()}: {errors.min():.3f},"
        f" {model.best_score_:.3f}"
    )
    return model


def adapt(X: Vector, y: Vector) -> AdaptiveOLSEnsembleRegressor:
    model = AdaptiveOLSEnsembleRegressor(schemes=["ridge", "lasso"], random_state=0).fit(X, y)
    weights = model.scheme_weights_
    std = model.coef_std()
    print(weights, f"{std.mean():.3f}", model.cv_results_["param_scheme"][model.best_index_])
    return model


def main() -> None:
    X, y = load_soil_carbon(return_X_y=True)
    names: list[str] = load_soil_carbon().feature_names
    X_test = X[400:, ::20]
    y_test = y[400:]
    X = X[:400, ::20]
    y = y[:400]
    n, p = X.shape

    size = columns_per_member(p, p / n, sigma=2.0)
    model = OLSEnsembleRegressor(n_estimators=200, max_features=size, random_state=0).fit(X, y)
    prediction, std = model.predict(X_test, return_std=True)
    interval = model.predict_interval(X_test, coverage=0.9)
    print(
        f"error {np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)):.3f}, spread"
        f" {std.mean():.3f}"
    )
    print(
        f"covered {inside(interval, y_test):.2f}, mean {prediction.mean():.2f}, b0"
        f" {float(model.intercept_):.2f}"
    )
    print([names[20 * int(j)] for j in np.argsort(-np.abs(model.coef_))[:3]])

    print(tune(X, y).predict(X_test[:2]).shape, adapt(X, y).predict(X_test[:2]).shape)
    dropout = DropoutRegressor(max_features=0.8, rescale=True).fit(X, y)
    print(np.abs(dropout.coef_ - model.coef_).max(), dropout.predict(X_test).mean())

    members = subsets.draw(p, 10, rng=0, size=size, design="balanced")
    coef, intercept = member_coefficients(X, y, members)
    print(coef.mean(axis=0)[members[0]], intercept.mean(), members.sizes.max())

    penalty = equivalence.ridge_penalty(X[:, ::5], 3)
    chance = equivalence.inclusion_probabilities(X[:, ::5], penalty)
    print(chance.sum(), equivalence.isotropic_penalty(X[:, ::5], 3) / n)

    alphas = np.linspace(0.05, 0.45, 9)
    curve = theory.limiting_risk(alphas, 2.0, 1.0, k=100)
    print(alphas[np.argmin(curve)], curve.min(), float(theory.limiting_risk(0.2, 2.0, 1.0)))
    print(
        theory.expected_risk(n, p, [4, 8], 1.0, k=np.inf)[0],
        str(theory.better_side(2.0, 0.5)).upper(),
    )
    risk, error = theory.covariance_risk(
        np.ones(p), np.full(p, p**-0.5), 0.3, 1.0, n=n, rng=0, return_std=True
    )

    problem = simulation.LinearProblem(n=60, p=40, sigma=0.5)
    (estimate,) = simulation.run([(problem, simulation.Ensemble(15, k=(1, 50)))], trials=5, rng=0)
    print(estimate.mean[:, 0], estimate.standard_error[-1, 0], float(risk), float(error))


if __name__ == "__main__":
    main()
