"""
What is an ensemble of least squares?
=====================================

An average of many ordinary least-squares fits, each on a few of the columns. There is no penalty in it. This page
makes one by hand, with scikit-learn and a loop, and then with :class:`olsen.OLSEnsembleRegressor`.
"""


# %%
# Eighty rows, sixty columns
# --------------------------
#
# Least squares has almost as many coefficients as rows. It fits the rows it sees and
# says little about others.

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression, RidgeCV

rng = np.random.default_rng(0)
truth = rng.standard_normal(60) / np.sqrt(60)


def draw_rows(n):
    X = rng.standard_normal((n, 60))
    return X, X @ truth + 0.5 * rng.standard_normal(n)


X, y = draw_rows(80)
X_new, y_new = draw_rows(5000)

least_squares = LinearRegression().fit(X, y)
print(f"R2 of least squares on its own rows: {least_squares.score(X, y):.2f}")
print(f"R2 of least squares on new rows: {least_squares.score(X_new, y_new):.2f}")

# %%
# The loop
# --------
#
# A *member* is least squares on twenty random columns, with zeros for all others. The ensemble is the mean of the
# members.

members = np.zeros((300, 60))
for member in members:
    columns = rng.choice(60, size=20, replace=False)
    member[columns] = LinearRegression().fit(X[:, columns], y).coef_

by_hand = members.mean(axis=0)
predicted = y.mean() + (X_new - X.mean(axis=0)) @ by_hand
print(
    "R2 of the loop on new rows: "
    f"{1 - np.mean((y_new - predicted) ** 2) / np.var(y_new):.2f}"
)

# %%
# The estimator
# -------------
#
# The same in one line. ``max_features`` is the size of the members, and it is what regularises: smaller shrinks
# more. However many members there are, one vector ``coef_`` is left, so prediction costs what it costs with ridge
# regression.

from olsen import OLSEnsembleRegressor

model = OLSEnsembleRegressor(n_estimators=300, max_features=20, random_state=0).fit(
    X, y
)
print(f"R2 of the ensemble on new rows: {model.score(X_new, y_new):.2f}")
print(
    "correlation of its coefficients with those of the loop: "
    f"{np.corrcoef(model.coef_, by_hand)[0, 1]:.3f}"
)

# %%
# Whoever draws twenty of sixty columns can draw three members that do not overlap. By default the estimator does: its
# members come in such groups (``design="balanced"``), which gives a lower risk for the same number of members.

plt.figure(figsize=(6, 3), layout="constrained")
plt.imshow(
    model.feature_subsets_.mask()[:12],
    cmap="Blues",
    aspect="auto",
    extent=(0.5, 60.5, 12.5, 0.5),
)
plt.gca().set(
    title="columns of the first twelve members", xlabel="column", ylabel="member"
)
plt.show()

# %%
# Which size?
# -----------
#
# :class:`olsen.OLSEnsembleRegressorCV` chooses it: it estimates the error of every size by exact leave-one-out, without
# refits, and takes the best.

from olsen import OLSEnsembleRegressorCV

tuned = OLSEnsembleRegressorCV(random_state=0).fit(X, y)
ridge = RidgeCV(alphas=np.logspace(-3, 4, 50)).fit(X, y)
print(f"chosen size: {tuned.max_features_} of 60 columns")

order = np.argsort(truth)
figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
ax.axhline(0, color="0.8", lw=1)
ax.plot(least_squares.coef_[order], "x", ms=5, color="0.5", label="least squares")
ax.plot(ridge.coef_[order], "s", ms=4, color="#E69F00", label="tuned ridge")
ax.plot(tuned.coef_[order], "o", ms=4, color="#0072B2", label="tuned ensemble")
ax.plot(truth[order], color="black", lw=1.5, label="truth")
ax.set(xlabel="columns, in the order of their true coefficients", ylabel="coefficient")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="lower right")
plt.show()

# %%
# No member is penalised, yet the average does what a tuned penalty does. For uncorrelated Gaussian columns, as here,
# the two have the same risk in the limit of large problems and many members (theorem). The problems here are small;
# the means over twenty problems are:

scores = []
for _ in range(20):
    X, y = draw_rows(80)
    fits = (
        OLSEnsembleRegressorCV(random_state=0),
        RidgeCV(alphas=np.logspace(-3, 4, 50)),
    )
    scores.append(
        [fit.fit(X, y).score(X_new, y_new) for fit in (*fits, LinearRegression())]
    )
for name, mean in zip(
    ("tuned ensemble", "tuned ridge", "least squares"),
    np.mean(scores, axis=0),
    strict=True,
):
    print(f"mean R2 of {name} on new rows: {mean:.2f}")
