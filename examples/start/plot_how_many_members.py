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
# ``members_needed(share)`` is the number with which the variance over draws is that share of the error of prediction.
# ``monte_carlo_std_`` is what another draw of as many members would do to the coefficients. No test rows are needed.

for share in (0.1, 0.01, 0.001):
    print(f"members for a variance of {share:.1%} of the error: {model.members_needed(share)}")

# %%
# Is that true? Draw the ensemble again, forty times with other seeds, and look. Members of 30 of 300 columns come in
# groups of ten that avoid each other. With less than five such groups the variance over draws cannot be told, and
# asking for it is an error.

SIZES = (50, 100, 300, 1000)
said, seen = [], []
for k in SIZES:
    draws = [OLSEnsembleRegressor(k, max_features=30, random_state=seed).fit(X, y) for seed in range(40)]
    said.append(np.sqrt(np.mean([np.mean(draw.monte_carlo_std_**2) for draw in draws[:3]])))
    seen.append(np.sqrt(np.var([draw.coef_ for draw in draws], axis=0, ddof=1).mean()))
    print(f"{k:>5} members: monte_carlo_std_ says {said[-1]:.5f}, other seeds say {seen[-1]:.5f}")

figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
ax.loglog(SIZES, said, "-", color="#0072B2", label="monte_carlo_std_")
ax.loglog(SIZES, seen, "o", color="#D55E00", label="standard deviation over 40 seeds")
ax.axhline(np.sqrt(np.mean(model.coef_**2)), color="black", ls=":", lw=1, label="size of the coefficients themselves")
ax.set_xticks(SIZES, SIZES)
ax.set_yticks([0.001, 0.003, 0.01, 0.03], ["0.001", "0.003", "0.01", "0.03"])
ax.set(xlabel="members", ylabel="root mean square over coefficients", ylim=(0.0008, 0.03))
ax.minorticks_off()
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
