"""
How many members are enough?
============================

On average more members never hurt, they only stop helping. What another draw of them would change is noise of our
own making: it falls with their number, and it can be measured on the fitted model.
"""

# %%
# The error falls as 1/k
# ----------------------
#
# Sixty rows for the fit, 300 columns. ``ConvergenceDisplay`` predicts new rows with the first 1, 2, 3, ... members.
# The mean over all orders of the members is :math:`C + (A - C)/k` (exact for equal weights), with A the error of
# single members and C that of infinitely many. The first member was an unlucky one here; a hundred members later
# nobody can tell.

import matplotlib.pyplot as plt
import numpy as np

from olsen import OLSEnsembleRegressor
from olsen.displays import ConvergenceDisplay

rng = np.random.default_rng(0)
truth = rng.standard_normal(300) / np.sqrt(300)
X, X_new = rng.standard_normal((60, 300)), rng.standard_normal((2000, 300))
y, y_new = X @ truth + 0.3 * rng.standard_normal(60), X_new @ truth + 0.3 * rng.standard_normal(2000)

model = OLSEnsembleRegressor(n_estimators=500, max_features=30, random_state=0).fit(X, y)
display = ConvergenceDisplay.from_estimator(model, X_new, y_new)
for k in (1, 10, 100, 500):
    print(f"{k:>4} members: error {display.error[k - 1]:.3f}")
print(f"infinitely many, estimated: {display.limit:.3f}")
plt.show()

# %%
# Ask the model
# -------------
#
# ``members_needed(share)`` is the number with which the variance of predictions over draws is that share of their
# mean squared error. No test rows are needed.

for share in (0.1, 0.01, 0.001):
    print(f"members for a variance of {share:.1%} of the error: {model.members_needed(share)}")

# %%
# Is that true? Draw as many members again, forty times with other seeds, and look. Members of 30 of 300 columns come in
# groups of ten that avoid each other. With less than five such groups the variance over draws cannot be told, and
# asking for it is an error.

SHARES = (0.01, 0.003, 0.001, 0.0003)
low, high = model.predict_interval(X[:1], 0.6827, method="normal")[0]  # one standard deviation of the error around it
seen = []
for share in SHARES:
    k = model.members_needed(share)
    draws = [OLSEnsembleRegressor(k, max_features=30, random_state=seed).fit(X, y).predict(X) for seed in range(40)]
    seen.append(np.var(draws, axis=0, ddof=1).mean() / ((high - low) / 2) ** 2)
    print(f"{k:>5} members: {share:.2%} of the error was asked for, other seeds say {seen[-1]:.2%}")

figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
needed = [model.members_needed(share) for share in SHARES]
ax.loglog(needed, SHARES, "-", color="#0072B2", label="members_needed")
ax.loglog(needed, seen, "o", color="#D55E00", label="variance over 40 seeds")
ax.set(xlabel="members", ylabel="variance over draws, share of the error")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()

# %%
# Grow it, or let it choose
# -------------------------
#
# With ``warm_start=True`` a further ``fit`` on the same data keeps the members there are and adds new ones: the
# result is that of a fresh fit. :class:`olsen.OLSEnsembleRegressorCV` has infinitely many members by default: schemes
# whose mean has a closed form need no draw. Uniform members have none; alone, as many are drawn as keep the error
# within 1 % of that of infinitely many.

from olsen import OLSEnsembleRegressorCV

growing = OLSEnsembleRegressor(100, max_features=30, warm_start=True, random_state=0).fit(X, y)
growing.set_params(n_estimators=500).fit(X, y)
difference = np.abs(growing.coef_ - model.coef_).max()
print(f"grown from 100 to 500 members, largest difference to a fresh fit: {difference:.1e}")

uniform = OLSEnsembleRegressorCV(inclusion="uniform", random_state=0).fit(X, y)
print(f"uniform members alone: {uniform.n_estimators_} of {uniform.max_features_} columns")
tuned = OLSEnsembleRegressorCV(random_state=0).fit(X, y)
shares = ", ".join(f"{share:.0%} {scheme}" for scheme, share in tuned.inclusion_shares_.items())
print(f"the default: {tuned.n_estimators_} members ({shares})")
