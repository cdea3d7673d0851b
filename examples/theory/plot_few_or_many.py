"""
Few large or many small members?
================================

A fixed number of coefficients can be one member with all columns, or many members that share the columns out. Ruben
and Pehlevan (2023) answered this question in the limit, for correlated columns. This page draws their phase diagram
with our formulas, then asks what a penalty changes, and ends with the exact answer for least squares.
"""

# %%
# The columns, shared out
# -----------------------
#
# Their problem: equally correlated columns (correlation c), coefficients that are random apart from a mean (share
# rho), noise of variance Z (1 - c). Each of k members has another 1/k of the columns, and all rows. Without a penalty,
# members with more columns than rows are minimum-norm fits. We take 120 columns instead of a limit, and coefficients of
# alternating signs in the place of random ones, so that all members are alike: the risk of k members
# then needs two numbers, of one member and of a pair.

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np

from olsen import OLSEnsembleRegressor, theory

P, C, RHO = 120, 0.1, 0.3
MEMBERS = np.array(
    [1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60]
)  # members of 120, ..., 2 columns
covariance = C + (1 - C) * np.eye(P)
signs = np.tile([1.0, -1.0], P // 2)
beta = (RHO + np.sqrt(1 - RHO**2) * signs) / np.sqrt(P)


def shared_out(k, n, noise, penalty=0.0):
    """Risk of k members on disjoint columns, for several variances of the noise."""
    first = np.arange(P // k)
    options = {"n": n, "penalty": penalty}
    member = theory.pair_risk(covariance, beta, first, first, noise**0.5, **options)
    if k == 1:
        return member
    pair = theory.pair_risk(
        covariance, beta, first, first + P // k, noise**0.5, **options
    )
    return pair + (member - pair) / k


# %%
# More members move the interpolation peak to the left, to 1/k rows per column, and flatten it. The points are fitted
# ensembles: with ``design="balanced"`` and the fraction 1/k, members are disjoint.

NOISE = 0.2 * (1 - C)
rows = np.arange(6, 361, 6)
simulated_rows = np.array([24, 72, 150, 300])
rng = np.random.default_rng(0)
root = np.linalg.cholesky(covariance)


def simulated(k, n, trials=20):
    """Mean risk of fitted ensembles."""
    risks = []
    for trial in range(trials):
        X = rng.standard_normal((n, P)) @ root.T
        y = X @ beta + NOISE**0.5 * rng.standard_normal(n)
        model = OLSEnsembleRegressor(
            k, 1 / k, fit_intercept=False, random_state=trial
        ).fit(X, y)
        risks.append((model.coef_ - beta) @ covariance @ (model.coef_ - beta))
    return np.mean(risks)


figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for k, colour in zip(
    (1, 2, 4, 12), ("#D55E00", "#E69F00", "#009E73", "#0072B2"), strict=True
):
    ax.plot(
        rows / P,
        [shared_out(k, n, NOISE) for n in rows],
        color=colour,
        label=f"k = {k}",
    )
    points = [simulated(k, n) for n in simulated_rows]
    ax.plot(simulated_rows / P, points, "o", ms=4, color=colour)
    print(
        f"k = {k:>2}: formula {shared_out(k, 300, NOISE):.3f}, fitted "
        f"{points[-1]:.3f} (300 rows)"
    )
ax.set(
    ylim=(0, 1.5),
    xlabel="rows per column",
    ylabel="risk (lines: formula; points: fitted)",
)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(title="members", frameon=False)
plt.show()

# %%
# The phase diagram
# -----------------
#
# The number of members with the lowest risk, over rows per column and noise. The fewer the rows and the stronger the
# noise, the more members are best. With many rows and little noise one member is best, and so it is
# far on the left, where it interpolates.

noise_levels = np.linspace(0.0, 2.1, 43)
risks = np.array(
    [[shared_out(k, n, noise_levels * (1 - C)) for n in rows] for k in MEMBERS]
)
best = MEMBERS[np.argmin(risks, axis=0)]  # (rows, noise)

figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
colours = plt.get_cmap("viridis", len(MEMBERS))
places = np.searchsorted(MEMBERS, best)
mesh = ax.pcolormesh(
    rows / P, noise_levels, places.T, cmap=colours, vmin=-0.5, vmax=11.5
)
bar = figure.colorbar(
    mesh, ax=ax, ticks=range(len(MEMBERS)), label="best number of members"
)
bar.ax.set_yticklabels(MEMBERS)
ax.set(xlabel="rows per column", ylabel="noise-to-signal ratio Z")
plt.show()
for n, z in ((60, 0.5), (120, 0.5), (240, 0.5), (360, 0.1)):
    column = np.argmin(np.abs(noise_levels - z))
    print(f"{n / P:.1f} rows per column, Z = {z}: {best[n // 6 - 1, column]} members")

# %%
# With the best penalty
# ---------------------
#
# Members may be ridge regressions. Once the penalty is tuned for every number of members, the risk rises with the
# number of members in all three cases below. (Ruben, Tong, Chaudhry and Pehlevan prove that for random features.)
# Many small members regularise; where a penalty does that, one large member is better.

from scipy.optimize import minimize_scalar


def with_best_penalty(k, n, noise):
    def risk(log_penalty):
        return float(shared_out(k, n, noise, penalty=np.exp(log_penalty)))

    return minimize_scalar(
        risk, bounds=(-7, 7), method="bounded", options={"xatol": 0.05}
    ).fun


few = (1, 2, 4, 12, 30)
tuned = np.array([[with_best_penalty(k, n, 0.45) for k in few] for n in (60, 120, 240)])
for n, values in zip((60, 120, 240), tuned, strict=True):
    plain = [float(shared_out(k, n, 0.45)) for k in few]
    print(f"{n / P:.1f} rows per column, members {few}")
    print("   no penalty  ", np.round(plain, 3))
    print("   best penalty", np.round(values, 3))

# %%
# Exactly, for least squares
# --------------------------
#
# For uncorrelated columns and random subsets :func:`olsen.theory.optimal_shape` compares all sizes with the exact risk
# at finite n and p. The budget is 120 coefficients, with 150 rows.

shape = theory.optimal_shape(150, P, [0.1, 0.3, 1.0, 2.0, 4.0], budget=P)
for sigma, k, m, risk in zip((0.1, 0.3, 1.0, 2.0, 4.0), *shape, strict=True):
    print(f"noise {sigma}: {k} members of {m} columns, risk {risk:.3f}")
