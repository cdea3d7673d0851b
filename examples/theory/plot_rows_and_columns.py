"""
Fewer rows, fewer columns, or both?
===================================

In the paper every member sees random rows *and* random columns; minipatches are the same idea. This page draws the
risk over both numbers, first in theory, then as :class:`olsen.OLSEnsembleRegressorCV` estimates it from one data
set when it tunes the two together.
"""

# %%
# The plane in theory
# -------------------
#
# 100 rows, 200 uncorrelated columns, noise 0.5. Above the dashed line, where a member has more rows than columns,
# it is a least-squares fit (exact for all rows, heuristic for some of them); below, it is the solution of minimum
# norm (asymptotic). Near the line a single member has a very large risk.
#
# The risk of infinitely many members depends on the smaller one of the two numbers only, so that its contours are
# corners: fewer rows cost nothing as long as they are more than the columns, and the best corner has the risk of
# the best ridge regression. Twenty members have to keep away from the line. Least-squares members are then best
# with all rows; better still are members with all columns and 70 rows.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeCV

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV, theory
from olsen.displays import TuningPlaneDisplay

N, P, SIGMA, MEMBERS = 100, 200, 0.5, 20
rows = np.arange(10, N + 1, 2)
columns = np.arange(2, P + 1, 2)


def risk(n_samples, n_features, k):
    """Risk of k members; infinite where there are as many rows as columns."""
    if n_features <= n_samples - 2:
        return theory.expected_risk(N, P, n_features, SIGMA, k=k, n_samples=n_samples)
    if n_features >= n_samples + 2:
        return theory.minimum_norm_risk(
            N, P, n_features, SIGMA, k=k, n_samples=n_samples
        )
    return np.inf


names = {MEMBERS: "20 members", np.inf: "infinitely many members"}
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
for ax, (k, name) in zip(axes, names.items(), strict=True):
    plane = np.array([[risk(tau, m, k) for m in columns] for tau in rows])
    colours = ax.pcolormesh(columns, rows, plane, vmin=0.62, vmax=1.0, cmap="viridis_r")
    ax.axline((0, 0), slope=1, color="white", lw=1, ls="--")
    best = np.unravel_index(np.argmin(plane), plane.shape)
    is_least_squares = columns < rows[:, None]
    best_fit = np.unravel_index(
        np.argmin(np.where(is_least_squares, plane, np.inf)), plane.shape
    )
    for place, label in ((best_fit, "best least squares"), (best, "best of all")):
        marker = "o" if place == best_fit else "D"
        ax.plot(
            columns[place[1]],
            rows[place[0]],
            marker,
            ms=9,
            mfc="none",
            mew=2,
            color="#D55E00",
        )
        print(
            f"{name}, {label}: {columns[place[1]]} columns, {rows[place[0]]} rows,"
            f" risk {plane[place]:.3f}"
        )
    ax.set(title=name, xlabel="columns in a member", xlim=(1, P + 1), ylim=(9, N + 1))
axes[0].set_ylabel("rows in a member")
figure.colorbar(colours, ax=axes, label="risk", extend="max")
plt.show()
print(f"best ridge regression: {theory.optimal_ridge_risk(P / N, SIGMA):.3f}")

# %%
# The plane from one data set
# ---------------------------
#
# A list as ``max_samples`` makes the estimator compare every number of rows, each along a path of numbers of
# columns, at about the cost of one fit for each. The criterion is leave-one-out: a row that a member did not see is
# predicted by the member as it is, a row that it saw by its leverage (exact for each member). The candidates are
# least-squares members, at some distance from the line.

beta = np.random.default_rng(0).standard_normal(P) / np.sqrt(P)
ROWS = [20, 40, 60, 80, 100]


def draw(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P))
    return X, X @ beta + SIGMA * rng.standard_normal(N)


plain = {"design": "independent", "fit_intercept": False, "random_state": 0}
tuned = OLSEnsembleRegressorCV(MEMBERS, max_samples=ROWS, **plain).fit(*draw(1))
TuningPlaneDisplay.from_estimator(tuned)
plt.show()
print(f"chosen: {tuned.max_features_} columns and {tuned.max_samples_} rows")

# %%
# On eight data sets
# ------------------
#
# Tuning the rows as well costs next to nothing, and where all rows are best it finds that out. On a table with more
# columns than rows, members with all columns and few rows are the better side (:func:`olsen.theory.better_side`);
# twenty of them come close to the best ridge regression. Their number of rows is taken from theory here, the best
# fraction times the number of columns.

n_samples = round(float(theory.optimal_alpha(P / N, SIGMA)) * P)
estimators = {
    "columns and rows tuned": OLSEnsembleRegressorCV(
        MEMBERS, max_samples=ROWS, **plain
    ),
    "columns tuned, all rows": OLSEnsembleRegressorCV(MEMBERS, **plain),
    f"all columns, {n_samples} rows": OLSEnsembleRegressor(
        MEMBERS, 1.0, n_samples, **plain
    ),
    "RidgeCV": RidgeCV(np.geomspace(1, 1000, 30), fit_intercept=False),
}
print("better side:", theory.better_side(P / N, SIGMA))
for name, estimator in estimators.items():
    risks = [
        np.sum((estimator.fit(*draw(seed)).coef_ - beta) ** 2) for seed in range(2, 10)
    ]
    error = np.std(risks, ddof=1) / np.sqrt(len(risks))
    print(f"{name:24s} risk {np.mean(risks):.3f} +- {error:.3f}")
