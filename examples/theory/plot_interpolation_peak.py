"""
What happens where members have as many columns as rows?
========================================================

Least squares with as many columns as rows fits every row exactly, and its coefficients explode. With still more
columns, the exact fit of minimum norm is stable again: this is the interpolation peak, or double descent. An average
of a few members has the peak, too; an average of infinitely many does not.
"""

# %%
# Theory
# ------
#
# Twice as many columns as rows, noise as large as half of the signal. A member has the fraction alpha of the columns,
# so it has as many columns as rows at alpha = 1/2. The lines are the limits of large problems (up to the peak a
# theorem, beyond it asymptotic), for one member, ten, a hundred and infinitely many.

import matplotlib.pyplot as plt
import numpy as np

from olsen import theory
from olsen.displays import RiskCurveDisplay

GAMMA, SIGMA, MEMBERS = 2.0, 0.5, (1, 10, 100, np.inf)
for k in MEMBERS:
    near, at_best = theory.limiting_risk(np.array([0.49, 0.3]), GAMMA, SIGMA, k=k)
    print(
        f"{k:>5} members: risk {at_best:6.2f} at alpha = 0.3, {near:6.2f} at "
        "alpha = 0.49"
    )

# %%
# Simulation
# ----------
#
# The points are means over fifteen simulated data sets of 60 rows and 120 columns, and do not depend on
# the theory. All points share the data sets, so all may lie too high or too low together.

from olsen.simulation import LinearProblem

grid = (
    0.5 + np.r_[-np.geomspace(0.49, 1e-4, 200), np.geomspace(1e-4, 0.5, 200)]
)  # dense about the peak
display = RiskCurveDisplay.from_theory(GAMMA, SIGMA, alpha=grid, k=MEMBERS)
RiskCurveDisplay.from_simulation(
    LinearProblem(n=60, p=120, sigma=SIGMA), k=(1, 10, 100),
    alpha=[0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0],
    trials=15, ridge=False, ax=display.ax_,
)  # fmt: skip
display.ax_.set(ylim=(0.4, 2.5))
display.ax_.axvline(0.5, color="0.9", lw=6, zorder=0)
display.ax_.text(0.5, 0.47, "as many columns as rows", ha="center", fontsize="small")
plt.show()

# %%
# Three things to take home
# -------------------------
#
# * The best infinite ensemble has the risk of optimally tuned ridge regression (theorem). Its members have fewer
#   columns than rows.
# * The more members, the narrower the peak. With few members stay away from it: ``theory.optimal_alpha(k=...)`` says
#   how far. (A single member does best with no columns at all, at this noise.)

for k in (1, 10, 100, np.inf):
    alpha = theory.optimal_alpha(GAMMA, SIGMA, k=k)
    risk = theory.limiting_risk(alpha, GAMMA, SIGMA, k=k)
    print(f"{k:>5} members: best fraction {alpha:.3f} of the columns, risk {risk:.3f}")
print(f"optimal ridge: risk {theory.optimal_ridge_risk(GAMMA, SIGMA):.3f}")

# %%
# * :class:`olsen.OLSEnsembleRegressorCV` avoids the peak: it only compares sizes up to 85 % of the rows, and stops
#   where the leave-one-out error has risen far above the smallest.

from olsen import OLSEnsembleRegressorCV

rng = np.random.default_rng(1)
truth = rng.standard_normal(120) / np.sqrt(120)
X = rng.standard_normal((60, 120))
model = OLSEnsembleRegressorCV(random_state=0).fit(
    X, X @ truth + SIGMA * rng.standard_normal(60)
)
sizes = model.cv_results_["param_max_features"]
print(f"sizes it compared: {sizes.min()} to {sizes.max()} of 120 columns, with 60 rows")
print(f"size it chose: {model.max_features_}")
