"""
What if rows come in groups?
============================

Several visits of a patient, several spectra of a sample, several plots of a field: such rows are similar, and a model
that was trained on one recording predicts the patient's other recordings too well. If the next patient will be a new
one, whole patients must be held out, for tuning and for intervals.
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

from olsen import AdaptiveOLSEnsembleRegressor

rng = np.random.default_rng(0)
truth = np.zeros(80)
truth[:10] = rng.standard_normal(10)
truth /= np.linalg.norm(truth)


def visits(n_patients):
    patient = rng.permutation(np.repeat(np.arange(n_patients), 8))
    X = rng.standard_normal((n_patients, 80))[patient] + 0.3 * rng.standard_normal(
        (len(patient), 80)
    )
    level = 0.7 * rng.standard_normal(n_patients)[patient]
    return X, X @ truth + level + 0.3 * rng.standard_normal(len(patient)), patient


X, y, patient = visits(60)
X_new, y_new, _ = visits(1000)

# %%
# Hold out visits, or patients?
# -----------------------------
#
# A splitter for groups is given as ``cv``, the ``groups`` themselves go to ``fit``. (A plain number such as ``cv=5``
# makes folds of neighbouring rows, as in scikit-learn: with a table sorted by patients it would be right by accident.)

by_visits = AdaptiveOLSEnsembleRegressor(random_state=0).fit(X, y)
by_patients = AdaptiveOLSEnsembleRegressor(cv=GroupKFold(5), random_state=0).fit(
    X, y, groups=patient
)

for name, model in (("visits held out", by_visits), ("patients held out", by_patients)):
    error = np.mean((model.predict(X_new) - y_new) ** 2)
    print(
        f"{name:>17}: estimated error {-model.best_score_:.2f}, error for new "
        f"patients {error:.2f}"
    )
    print(f"{'':>17}  {model.inclusion_.sum():.0f} of 80 columns per member on average")

# %%
# With visits held out, a visit is predicted by a model that knows the patient. The estimated error is far too small,
# and the members are far too large: they learn to recognise patients.
#
# Intervals
# ---------
#
# A model that was fitted with groups uses folds of whole groups for its intervals, too (``"cv+"``). A method that holds
# out single rows is refused.

try:
    by_patients.predict_interval(X_new[:1], method="jackknife+")
except ValueError as error:
    print(error)

COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9)
measured = {"visits held out": [], "patients held out": []}
for coverage in COVERAGES:
    for fractions, model in zip(
        measured.values(), (by_visits, by_patients), strict=True
    ):
        low, high = model.predict_interval(X_new, coverage).T
        fractions.append(np.mean((low <= y_new) & (y_new <= high)))
for name, fractions in measured.items():
    print(
        f"{name:>17}: intervals for 90 % contain {fractions[-1]:.0%} of the "
        "visits of new patients"
    )

# %%
# Exchangeable groups take the place of exchangeable rows in what is promised: at least 1 - 2 (1 - coverage), up to a
# term that vanishes with the size of the folds, if nothing was chosen with the targets (theorem; here the weights of
# the schemes were, so that simulation is the evidence). Sixty patients are few: another sixty would move the blue line
# up or down.

figure, ax = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
ax.plot([0.5, 0.9], [0.5, 0.9], color="black", lw=1, ls="--", label="as asked for")
ax.plot(
    COVERAGES,
    measured["patients held out"],
    "o-",
    color="#0072B2",
    label="patients held out",
)
ax.plot(
    COVERAGES,
    measured["visits held out"],
    "s-",
    color="#D55E00",
    label="visits held out",
)
ax.set(xlabel="coverage asked for", ylabel="visits of new patients inside", ylim=(0, 1))
ax.set_xticks(COVERAGES)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="upper left")
plt.show()
