"""
How sure is a coefficient?
==========================

``coef_std`` and ``coef_interval`` say how much a coefficient would vary over training sets like this one. Both are
about the *expected* coefficient of the ensemble, which is shrunk, and not about the truth behind the data. This page
shows the tools, and then what that difference amounts to.
"""

# %%
# A table and a picture
# ---------------------
#
# Ten measurements of 442 patients, in their own units.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from olsen import OLSEnsembleRegressor
from olsen.displays import CoefficientDisplay

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X.columns = [
    "age", "sex", "BMI", "blood pressure", "cholesterol", "LDL", "HDL",
    "chol. / HDL", "triglycerides", "glucose",
]  # fmt: skip
model = OLSEnsembleRegressor(n_estimators=1000, max_features=5, random_state=0).fit(
    X, y
)
print(model.summary(coverage=0.9).coefficients.round(2).to_string(index=False))

# %%
# ``lower`` and ``upper`` are the ends of the 90 % interval. The other columns are about the members: the fraction of
# members that contain the column, mean and spread of its coefficient among such members, and how many agree with the
# mean about its sign. LDL and cholesterol go together (correlation 0.9): the sign of each coefficient depends
# on whether a member also holds the other, and ``same_sign`` says so.

print(
    "correlation of LDL and cholesterol: "
    f"{np.corrcoef(X['LDL'], X['cholesterol'])[0, 1]:.2f}"
)
CoefficientDisplay.from_estimator(model, X=X)
plt.show()

# %%
# Expected, not true
# ------------------
#
# Now the truth is known: 80 rows, 30 columns of which ten have signal, 300 training sets. Members hold twelve
# columns, so three in five members leave a column out, and its coefficient is shrunk accordingly.

rng = np.random.default_rng(0)
truth = np.repeat([1.0, -0.5, 0.0], [5, 5, 20])
found, low, high, std = [], [], [], []
for _ in range(300):
    rows = rng.standard_normal((80, 30))
    target = rows @ truth + rng.standard_normal(80)
    ensemble = OLSEnsembleRegressor(200, max_features=12, random_state=0).fit(
        rows, target
    )
    ends = ensemble.coef_interval(0.9)
    for results, value in zip(
        (found, low, high, std),
        (ensemble.coef_, *ends.T, ensemble.coef_std()),
        strict=True,
    ):
        results.append(value)
found, low, high, std = map(np.array, (found, low, high, std))
expected = found.mean(axis=0)

print(
    "     truth: expected coefficient, its spread over training sets, mean of "
    "coef_std(), 90 % intervals that hold"
)
for value in (1.0, -0.5, 0.0):
    columns = truth == value
    holds = {
        name: np.mean((low <= centre)[:, columns] & (centre <= high)[:, columns])
        for name, centre in (("the expected one", expected), ("the truth", truth))
    }
    print(
        f"{value:>10}: {expected[columns].mean():+.2f}, "
        f"{found[:, columns].std(axis=0).mean():.3f}, "
        f"{std[:, columns].mean():.3f}, "
        + ", ".join(f"{name} {fraction:.0%}" for name, fraction in holds.items())
    )

# %%
# The standard errors describe the variation well (asymptotic). The intervals hold the expected coefficient about as
# often as they say, and a true coefficient that is not zero almost never: it is outside, by the shrinkage.

figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
places = np.arange(30)
ax.axhline(0, color="0.85", lw=1)
ax.errorbar(
    places, found[0], yerr=[found[0] - low[0], high[0] - found[0]],
    fmt="none", color="#56B4E9", lw=3, label="90 % interval, one training set",
)  # fmt: skip
ax.plot(places, expected, "o", ms=5, color="#0072B2", label="expected coefficient")
ax.plot(places, truth, "_", ms=10, mew=2, color="#D55E00", label="truth")
ax.set(xlabel="column", ylabel="coefficient")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()

# %%
# After tuning
# ------------
#
# With :class:`olsen.AdaptiveOLSEnsembleRegressor` another training set would lead to other penalties and other weights
# of the sampling schemes. Its standard errors therefore repeat the whole choice on 30 subsets of the rows, which takes
# about as long as 30 fits, once (heuristic; :doc:`/guide/uncertainty` says how close they are). Signals at the edge of
# being selected are hard for every method.

from olsen import AdaptiveOLSEnsembleRegressor

tuned = AdaptiveOLSEnsembleRegressor().fit(X, y)
for name, coef, std in zip(X.columns, tuned.coef_, tuned.coef_std(), strict=True):
    print(f"{name:>14}: {coef:7.2f} +- {std:.2f}")
