"""
How many members are enough?
============================

On average more members never hurt; beyond some number more members only stop helping. How much predictions change with
another draw of members is noise that the method adds. It falls with the number of members, and it can be measured on
the fitted model.
"""

# %%
# The error falls as 1/k
# ----------------------
#
# Sixty rows for the fit, 300 columns. ``ConvergenceDisplay`` predicts new rows with the first 1, 2, 3, ... members.
# The mean over all orders of the members is :math:`C + (A - C)/k` (exact for equal weights), with A the error of
# single members and C that of infinitely many. The first member happens to be a bad one here; with a hundred members
# that no longer matters.

import matplotlib.pyplot as plt
import numpy as np

from olsen import OLSEnsembleRegressor
from olsen.displays import ConvergenceDisplay

rng = np.random.default_rng(0)
truth = rng.standard_normal(300) / np.sqrt(300)
X, X_new = rng.standard_normal((60, 300)), rng.standard_normal((2000, 300))
y, y_new = (
    X @ truth + 0.3 * rng.standard_normal(60),
    X_new @ truth + 0.3 * rng.standard_normal(2000),
)

model = OLSEnsembleRegressor(n_estimators=500, max_features=30, random_state=0).fit(
    X, y
)
display = ConvergenceDisplay.from_estimator(model, X_new, y_new)
for k in (1, 10, 100, 500):
    print(f"{k:>4} members: error {display.error[k - 1]:.3f}")
print(f"infinitely many, estimated: {display.limit:.3f}")
plt.show()

# %%
# Ask the model
# -------------
#
# ``members_needed(share)`` is the number of members for which the variance of predictions over draws is that fraction
# of their mean squared error. No test rows are needed.

for fraction in (0.1, 0.01, 0.001):
    print(
        f"members for a variance of {fraction:.1%} of the error: "
        f"{model.members_needed(fraction)}"
    )

# %%
# To check this, draw that many members forty times, with other seeds. Members of 30 of 300 columns come in groups of
# ten that do not overlap. With fewer than five such groups the variance over draws cannot be estimated, and
# ``members_needed`` raises an error.

FRACTIONS = (0.01, 0.003, 0.001, 0.0003)
low, high = model.predict_interval(X[:1], 0.6827, method="normal")[
    0
]  # one standard deviation of the error around it
measured = []
for fraction in FRACTIONS:
    k = model.members_needed(fraction)
    draws = [
        OLSEnsembleRegressor(k, max_features=30, random_state=seed).fit(X, y).predict(X)
        for seed in range(40)
    ]
    measured.append(np.var(draws, axis=0, ddof=1).mean() / ((high - low) / 2) ** 2)
    print(
        f"{k:>5} members: {fraction:.2%} of the error requested, "
        f"{measured[-1]:.2%} measured"
    )

figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
needed = [model.members_needed(fraction) for fraction in FRACTIONS]
ax.loglog(needed, FRACTIONS, "-", color="#0072B2", label="members_needed")
ax.loglog(needed, measured, "o", color="#D55E00", label="variance over 40 seeds")
ax.set(xlabel="members", ylabel="variance over draws / error")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()

# %%
# More members, or a number chosen for you
# ----------------------------------------
#
# Member i depends on the seed and on i alone, so that a larger ensemble contains the smaller one.
# :class:`olsen.OLSEnsembleRegressorCV` chooses the number together with the size: enough to keep the error within 1 %
# of that of infinitely many. :class:`olsen.AdaptiveOLSEnsembleRegressor` has infinitely many members by default,
# because the mean of determinantal members has a closed form.

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV

small = OLSEnsembleRegressor(100, max_features=30, random_state=0).fit(X, y)
same = all(
    np.array_equal(small.feature_subsets_[i], model.feature_subsets_[i])
    for i in range(100)
)
print(f"the first 100 of 500 members are those of an ensemble of 100: {same}")

tuned = OLSEnsembleRegressorCV(random_state=0).fit(X, y)
print(f"size tuned: {tuned.n_estimators_} members of {tuned.max_features_} columns")
adaptive = AdaptiveOLSEnsembleRegressor(random_state=0).fit(X, y)
weights = ", ".join(
    f"{weight:.0%} {scheme}" for scheme, weight in adaptive.scheme_weights_.items()
)
print(f"adaptive: {adaptive.n_estimators_} members ({weights})")
