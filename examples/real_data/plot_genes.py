"""
Seventy patients, two thousand genes: what can be learned?
==========================================================

With thirty times more columns than rows, least squares fits any outcome exactly. Genes vary together, however, in
pathways that are far fewer than the patients. This page simulates such data, where the truth is known, and compares
ridge regression, the lasso and an adaptive ensemble.
"""

# %%
# Data with pathways
# ------------------
#
# Twelve hidden factors move 2000 genes, each gene with its own noise. The outcome depends on three of the factors
# (many genes carry a little of it), or on five single genes (few carry all of it).

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LassoCV, LinearRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from olsen import AdaptiveOLSEnsembleRegressor

GENES, FACTORS, MARKERS = 2000, 12, [10, 400, 800, 1200, 1600]


def simulate(n, kind, rng):
    """Expression of genes in n training and 500 new patients, and their outcomes."""
    loadings = rng.standard_normal((FACTORS, GENES)) * rng.choice(
        [0.0, 1.0], p=[0.7, 0.3], size=(FACTORS, GENES)
    )
    factors = rng.standard_normal((n + 500, FACTORS))
    X = factors @ loadings + 1.5 * rng.standard_normal((n + 500, GENES))
    signal = (
        factors[:, :3].sum(axis=1) if kind == "pathways" else X[:, MARKERS].sum(axis=1)
    )
    y = signal + 0.5 * signal.std() * rng.standard_normal(n + 500)
    return X[:n], y[:n], X[n:], y[n:]


# %%
# Same data, four models
# ----------------------
#
# Six data sets of each kind, all models behind a ``StandardScaler``. R2 is measured on 500 new patients.

models = {
    "least squares": LinearRegression(),
    "ridge": RidgeCV(alphas=np.logspace(-2, 6, 60)),
    "lasso": LassoCV(alphas=30, eps=0.02, cv=5),
    "ensemble": AdaptiveOLSEnsembleRegressor(random_state=0),
}
KINDS = {
    "pathways": "outcome follows pathways",
    "markers": "outcome follows five genes",
}
scores = {kind: np.empty((6, len(models))) for kind in KINDS}
weights = {kind: [] for kind in KINDS}
for kind in KINDS:
    for seed in range(6):
        X, y, X_new, y_new = simulate(70, kind, np.random.default_rng(seed))
        for i, model in enumerate(models.values()):
            fitted = make_pipeline(StandardScaler(), model).fit(X, y)
            scores[kind][seed, i] = fitted.score(X_new, y_new)
        weights[kind].append(fitted[-1].scheme_weights_)
    print(kind)
    for i, name in enumerate(models):
        mean, error = (
            scores[kind][:, i].mean(),
            scores[kind][:, i].std(ddof=1) / np.sqrt(6),
        )
        print(f"  {name:>13}: R2 {mean:.2f} +- {error:.2f}")

# %%
# Ridge regression suits the first kind and the lasso the second. The ensemble is not told which kind it is given.
# (With more columns than rows ``LinearRegression`` gives the shortest of all exact fits. That one is not bad here:
# with thirty times more columns than rows it is close to ridge regression with a small penalty.)

figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharey=True)
for ax, (kind, title) in zip(axes, KINDS.items(), strict=True):
    ax.plot(scores[kind].T, color="0.8", lw=1, zorder=0)
    for i, colour in enumerate(("0.4", "#E69F00", "#009E73", "#0072B2")):
        ax.plot(np.full(6, i), scores[kind][:, i], "o", ms=5, color=colour)
        ax.plot(i, scores[kind][:, i].mean(), "_", ms=28, mew=2.5, color=colour)
    ax.set_xticks(range(len(models)), models)
    ax.set(title=title, xlim=(-0.5, len(models) - 0.5))
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("R2 of new patients")
plt.show()

# %%
# What the ensemble chose
# -----------------------
#
# ``scheme_weights_`` are the weights of the sampling schemes, found by cross-validation: from *uniform* and *ridge*,
# which treat all genes in the same way, to *lasso* and *sparse*, which select a few. *Null* is the mean outcome.

for kind, of_data_sets in weights.items():
    schemes = ("uniform", "ridge", "power", "lasso", "sparse", "null")
    means = {
        scheme: np.mean([one.get(scheme, 0.0) for one in of_data_sets])
        for scheme in schemes
    }
    print(
        f"{kind:>9}: "
        + ", ".join(f"{weight:.0%} {scheme}" for scheme, weight in means.items())
    )

# %%
# Which genes?
# ------------
#
# ``selected_`` marks the genes that a sparse model would keep, ``selection_frequency_`` the fraction of the folds
# that keep the gene too. It is a measure of trust, not a test: no error rate is controlled (heuristic).

X, y, *_ = simulate(70, "markers", np.random.default_rng(0))
model = AdaptiveOLSEnsembleRegressor(random_state=0).fit(
    StandardScaler().fit_transform(X), y
)
frequency = model.selection_frequency_
print("markers:", {gene: round(float(frequency[gene]), 2) for gene in MARKERS})
others = np.setdiff1d(np.arange(GENES), MARKERS)
print(
    "other genes kept in at least half of the folds: "
    f"{(frequency[others] >= 0.5).sum()} of {len(others)}"
)
