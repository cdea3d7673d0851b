"""
Do the intervals cover?
=======================

A prediction is more useful with an interval. Intervals from quantiles of the training residuals cover too little,
because a model is closer to its training rows than to new ones. ``predict_interval`` uses held-out rows instead.
"""

# %%
# One call
# --------
#
# Progression of diabetes in 442 patients. One half of the patients is for the fit, the other half says how often the
# intervals are right.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from olsen import AdaptiveOLSEnsembleRegressor
from olsen.displays import IntervalDisplay

X, X_new, y, y_new = train_test_split(
    *load_diabetes(return_X_y=True), test_size=0.5, random_state=0
)
model = AdaptiveOLSEnsembleRegressor(random_state=0).fit(X, y)
low, high = model.predict_interval(X_new, coverage=0.9).T
print(
    f"{np.mean((low <= y_new) & (y_new <= high)):.0%} of {len(y_new)} new "
    "patients are inside their 90 % intervals"
)

# %%
# The lower panel asks for more: coverage along the predictions. The patients with the lowest ones vary less than
# others, and intervals of nearly equal widths are too wide for such rows. The promise is about all new rows
# together.

display = IntervalDisplay.from_estimator(model, X_new, y_new, coverage=0.9)
print(
    "coverage from the lowest to the highest predictions:",
    display.bin_coverage.round(2),
)
display.ax_.set_ylabel("progression of the disease")
plt.show()

# %%
# Against residual quantiles
# --------------------------
#
# Few rows for the columns, where it matters: 60 rows, 40 columns, forty simulated data sets, 500 new rows each. Every
# model gives intervals for 80 % in four ways.
#
# * **raw residuals**: prediction plus and minus the 80 % quantile of the training residuals.
# * ``"jackknife+"`` leaves out every training row in turn, by formula, and ``"cv+"`` ten folds. For exchangeable
#   rows, and where nothing was chosen with the targets, both cover at least 1 - 2 x 20 % = 60 % (theorem, for
#   cv+ up to a term that vanishes with the rows of a fold); in simulation the coverage is close to the 80 % asked for.
# * ``"normal"``: the estimated error times a quantile of the normal distribution; no guarantee.

from olsen import OLSEnsembleRegressor

rng = np.random.default_rng(0)
METHODS = ("jackknife+", "cv+", "normal")
coverage, width = np.empty((40, 4)), np.empty((40, 4))
for i in range(40):
    truth = rng.standard_normal(40) / np.sqrt(40)
    X, X_new = rng.standard_normal((60, 40)), rng.standard_normal((500, 40))
    y, y_new = (
        X @ truth + 0.7 * rng.standard_normal(60),
        X_new @ truth + 0.7 * rng.standard_normal(500),
    )
    model = OLSEnsembleRegressor(200, max_features=20, random_state=0).fit(X, y)
    half = np.quantile(np.abs(y - model.predict(X)), 0.8)
    raw = model.predict(X_new)[:, None] + [-half, half]
    for j, ends in enumerate(
        [raw, *(model.predict_interval(X_new, 0.8, method) for method in METHODS)]
    ):
        coverage[i, j] = np.mean((ends[:, 0] <= y_new) & (y_new <= ends[:, 1]))
        width[i, j] = np.mean(ends[:, 1] - ends[:, 0])

names = ("raw residuals", *METHODS)
for name, found, size in zip(names, coverage.T, width.T, strict=True):
    error = found.std(ddof=1) / np.sqrt(len(found))
    print(
        f"{name:>13}: covers {found.mean():.1%} +- {error:.1%}, mean width "
        f"{size.mean():.2f}"
    )

# %%

figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
ax.axvline(0.8, color="black", lw=1, ls="--")
ax.text(0.8, 3.62, "asked for", ha="center", va="bottom")
for j in range(len(names)):
    shift = 0.12 * rng.uniform(-1, 1, len(coverage))
    ax.plot(
        coverage[:, j],
        3 - j + shift,
        "o",
        ms=4,
        alpha=0.5,
        color="#D55E00" if j == 0 else "#0072B2",
    )
    ax.plot(coverage[:, j].mean(), 3 - j, "|", ms=26, mew=2.5, color="black")
ax.set_yticks(range(3, -1, -1), names)
ax.set(
    xlabel="fraction of the new rows inside, one point for each data set",
    ylim=(-0.5, 3.6),
)
ax.spines[["top", "right", "left"]].set_visible(False)
plt.show()

# %%
# Which one?
# ----------
#
# The default is ``method="auto"``. For :class:`olsen.AdaptiveOLSEnsembleRegressor` it is cv+ in the folds of its own
# cross-validation, at no further cost. For :class:`olsen.OLSEnsembleRegressor` and
# :class:`olsen.OLSEnsembleRegressorCV` it is jackknife+ if the training rows are in memory, and cv+ if they are not or
# if they come in groups (:ref:`sphx_glr_auto_examples_real_data_plot_groups.py`). ``"normal"`` only needs the estimated
# error. Pickles and model files keep what all of them need.
