"""
What if rows come in groups?
============================

Several visits of a patient, several spectra of a sample, several plots of a field: such rows are alike, and a model
that has seen one of them predicts the others too well. If the next patient will be a new one, whole patients must be
left out, in tuning and in intervals.
"""

# %%
# Visits of patients
# ------------------
#
# Sixty patients come eight times each, in any order. Eighty measurements, ten of which matter, hardly change between
# the visits of a patient, and every patient has a level of the outcome that no measurement explains.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GroupKFold

from olsen import OLSEnsembleRegressorCV

rng = np.random.default_rng(0)
truth = np.zeros(80)
truth[:10] = rng.standard_normal(10)
truth /= np.linalg.norm(truth)


def visits(n_patients):
    patient = rng.permutation(np.repeat(np.arange(n_patients), 8))
    X = rng.standard_normal((n_patients, 80))[patient] + 0.3 * rng.standard_normal((len(patient), 80))
    level = 0.7 * rng.standard_normal(n_patients)[patient]
    return X, X @ truth + level + 0.3 * rng.standard_normal(len(patient)), patient


X, y, patient = visits(60)
X_new, y_new, _ = visits(1000)

# %%
# Leave out visits, or patients?
# ------------------------------
#
# A splitter for groups is given as ``cv``, the ``groups`` themselves go to ``fit``. (A plain number such as ``cv=5``
# makes folds of neighbouring rows, as in scikit-learn: with a table sorted by patients it would do the right thing
# by accident.)

by_visits = OLSEnsembleRegressorCV(random_state=0).fit(X, y)
by_patients = OLSEnsembleRegressorCV(cv=GroupKFold(5), random_state=0).fit(X, y, groups=patient)

for name, model in (("visits left out", by_visits), ("patients left out", by_patients)):
    error = np.mean((model.predict(X_new) - y_new) ** 2)
    print(f"{name:>17}: estimated error {-model.best_score_:.2f}, error for new patients {error:.2f}")
    print(f"{'':>17}  {model.max_features_} of 80 columns in a member")

# %%
# With visits left out, a visit is predicted by a model that knows the patient. The estimated error is far too small,
# and the members are far too large: they learn to recognise patients.
#
# Intervals
# ---------
#
# Those of a model that was fitted with groups leave out the folds of whole groups (``"cv+"``). A method that leaves
# out single rows is refused.

try:
    by_patients.predict_interval(X_new[:1], method="jackknife+")
except ValueError as error:
    print(error)

COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9)
found = {"visits left out": [], "patients left out": []}
for coverage in COVERAGES:
    for shares, model in zip(found.values(), (by_visits, by_patients), strict=True):
        low, high = model.predict_interval(X_new, coverage).T
        shares.append(np.mean((low <= y_new) & (y_new <= high)))
for name, shares in found.items():
    print(f"{name:>17}: intervals for 90 % hold {shares[-1]:.0%} of the visits of new patients")

# %%
# Exchangeable groups take the place of exchangeable rows in what is promised: at least 1 - 2 (1 - coverage), up to a
# term that vanishes with the size of the folds, if nothing was chosen with the targets (theorem; here schemes and
# shares were, and what holds is what simulation shows). Sixty patients are few: another sixty would move the blue line
# up or down.

figure, ax = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
ax.plot([0.5, 0.9], [0.5, 0.9], color="black", lw=1, ls="--", label="as asked for")
ax.plot(COVERAGES, found["patients left out"], "o-", color="#0072B2", label="patients left out")
ax.plot(COVERAGES, found["visits left out"], "s-", color="#D55E00", label="visits left out")
ax.set(xlabel="coverage asked for", ylabel="visits of new patients inside", ylim=(0, 1))
ax.set_xticks(COVERAGES)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="upper left")
plt.show()
