"""
A larger penalty, or fewer rows?
================================

An average of ridge regressions on random rows is regularised twice: by the penalty, and by the number of rows. Du,
Patil and Kuchibhotla (2023) drew the contours of equal risk over the two, and proved that one can take the place of
the other. This page draws them with our formulas, with the parameters of their code, and follows one contour down to
no penalty at all, where members are plain minimum-norm fits that olsen can draw and average.
"""

# %%
# Contours of equal risk
# ----------------------
#
# 500 columns, 5000 rows, correlations 0.25 to the power of the distance, coefficients along the five strongest
# directions, noise 1. Members have random subsets of the rows: their size is given as columns per
# row, from 0.1 (all rows) to 10 (50 rows). The penalty counts per row of a member.

import matplotlib.pyplot as plt
import numpy as np
from scipy.interpolate import CubicSpline

from olsen import OLSEnsembleRegressor, theory

N, P, SIGMA = 5000, 500, 1.0
columns = np.arange(P)
covariance = 0.25 ** np.abs(columns[:, None] - columns)
variances, directions = np.linalg.eigh(covariance)
beta = directions[:, -5:].mean(axis=1)
beta *= np.sign(beta.sum())

# %%
# An infinite ensemble knows penalty and rows through one number alone, the effective penalty mu of its members
# (asymptotic). So the risk over the whole plane is that of ridge regressions on *all* rows, each with the penalty that
# gives the same mu. :func:`olsen.theory.effective_penalty` solves for mu.


def effective(penalty, columns_per_row):
    n_samples = P / columns_per_row
    return theory.effective_penalty(variances, n_samples, penalty * n_samples)


def ridge_of(mu):
    """Penalty of the ridge regression on all rows with this effective penalty, and its
    risk.
    """
    penalty = mu * (N - np.sum(variances / (variances + mu)))
    coefficients = directions.T @ beta
    risk = theory.ridge_covariance_risk(variances, coefficients, penalty, SIGMA, n=N)
    return penalty, float(risk)


penalties = np.logspace(-2, 1, 40)
aspects = np.logspace(-1, 1, 41)
mu = np.array(
    [[effective(penalty, aspect) for aspect in aspects] for penalty in penalties]
)
curve = np.geomspace(mu.min(), mu.max(), 40)
risk_of_curve = [ridge_of(value)[1] for value in curve]
risk = CubicSpline(np.log(curve), risk_of_curve)(np.log(mu))
best = int(np.argmin(risk_of_curve))
print(
    f"best effective penalty {curve[best]:.3f}: excess risk {risk_of_curve[best]:.4f}"
)

# %%
# Along a contour the penalty per row falls in a straight line as the columns per row grow, until there is none:
# :func:`olsen.theory.covariance_row_path`. Three points of the contour of the lowest risk are checked with
# :func:`olsen.theory.covariance_risk`, which knows no shortcut.

target = curve[best]
best_penalty, _ = ridge_of(target)
degrees = np.sum(variances / (variances + target))
end = P / degrees  # columns per row at which the contour reaches no penalty
path = np.linspace(aspects[0], end, 200)


def penalty_of_path(columns_per_row):
    """Penalty of a member on the contour of the lowest risk."""
    return theory.covariance_row_path(variances, best_penalty, P / columns_per_row, n=N)


figure, ax = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
levels = np.quantile(risk, np.linspace(0, 1, 16))
filled = ax.contourf(aspects, penalties, risk, levels=levels, cmap="viridis_r")
figure.colorbar(filled, ax=ax, label="excess risk", format="%.3f")
ax.plot(
    path, penalty_of_path(path) * path / P, color="#D55E00", lw=2, label="lowest risk"
)
ax.set(
    xscale="log",
    yscale="log",
    xlabel="columns per row of a member",
    ylabel="penalty per row",
)
ax.set_ylim(penalties[[0, -1]])
ax.legend(loc="lower left")
plt.show()

checked_aspects = np.array([0.1, 1.0, end])
checked = []
for aspect in checked_aspects:
    n_samples = P / aspect
    penalty = float(penalty_of_path(aspect))
    options = {"n": N, "eta": n_samples / N, "penalty": penalty}
    checked.append(
        float(theory.covariance_risk(covariance, beta, 1.0, SIGMA, **options))
    )
    per_row = penalty / n_samples
    print(
        f"{aspect:5.2f} columns per row, penalty {per_row:.4f} per row: risk "
        f"{checked[-1]:.4f}"
    )

# %%
# Without a penalty
# -----------------
#
# At the end of the contour members interpolate: they are minimum-norm fits on fewer rows than
# columns, and their average has the risk of the best ridge regression. Here are ensembles of twenty
# on one simulated data set, beside the formula for twenty and for infinitely many.

rng = np.random.default_rng(0)
X = rng.standard_normal((N, P)) @ np.linalg.cholesky(covariance).T
y = X @ beta + SIGMA * rng.standard_normal(N)


COUNTS = np.array([20, np.inf])


def ridgeless(aspect):
    """Risks of both numbers of members without a penalty."""
    options = {"n": N, "eta": round(P / aspect) / N, "k": COUNTS}
    return theory.covariance_risk(covariance, beta, 1.0, SIGMA, **options)


fitted_aspects = np.array([0.25, 2.0, 4.0, 8.0])
fitted = []
for aspect in fitted_aspects:
    model = OLSEnsembleRegressor(
        20,
        1.0,
        round(P / aspect),
        design="independent",
        fit_intercept=False,
        random_state=0,
    ).fit(X, y)
    fitted.append((model.coef_ - beta) @ covariance @ (model.coef_ - beta))

grid = np.r_[np.geomspace(0.1, 0.95, 12), np.geomspace(1.05, 10, 18)]
curves = np.array([ridgeless(aspect) for aspect in grid])
figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
ax.plot(grid, curves[:, 0], color="#E69F00", label="20 members, formula")
ax.plot(grid, curves[:, 1], color="#0072B2", label="infinitely many members, formula")
ax.plot(fitted_aspects, fitted, "o", color="#E69F00", label="20 members, fitted")
ax.axhline(risk_of_curve[best], color="0.4", ls="--", label="best ridge regression")
ax.set(
    xscale="log",
    ylim=(0, 0.3),
    xlabel="columns per row of a member",
    ylabel="excess risk",
)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="upper left")
plt.show()
for aspect, measured in zip(fitted_aspects, fitted, strict=True):
    print(
        f"{aspect:.2f} columns per row: {measured:.4f}, formula "
        f"{ridgeless(aspect)[0]:.4f}"
    )
