"""
Does averaging least squares work for sparse signals?
=====================================================

Members with uniformly drawn columns behave like ridge regression, which does poorly if only a few columns matter.
:class:`olsen.AdaptiveOLSEnsembleRegressor` also has members that prefer the columns with signal. This page goes from
one column with signal to all columns with signal, and compares with ridge regression and the lasso.
"""

# %%
# From one column to all
# ----------------------
#
# 100 rows, 150 independent columns, a signal of norm one spread over s columns, noise of standard deviation 0.5.
# Columns are standard normal, so the excess error of coefficients is their squared distance from the truth: no test
# set is needed.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LassoCV, RidgeCV

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV

N, P, COLUMNS, DATA_SETS = 100, 150, (1, 3, 10, 30, 150), 5
SCHEMES = ("uniform", "ridge", "power", "lasso", "sparse", "null")


def draw(s, seed):
    rng = np.random.default_rng([seed, s])
    truth = np.zeros(P)
    truth[:s] = rng.standard_normal(s)
    truth /= np.linalg.norm(truth)
    X = rng.standard_normal((N, P))
    return X, X @ truth + 0.5 * rng.standard_normal(N), truth


models = {
    "ridge": RidgeCV(alphas=np.logspace(-2, 5, 60)),
    "lasso": LassoCV(alphas=50, eps=0.01, cv=5),
    "ensemble, size tuned": OLSEnsembleRegressorCV(random_state=0),
    "adaptive ensemble": AdaptiveOLSEnsembleRegressor(random_state=0),
}
risk = np.empty((len(COLUMNS), DATA_SETS, len(models)))
weights = np.zeros((len(COLUMNS), len(SCHEMES)))
for i, s in enumerate(COLUMNS):
    for seed in range(DATA_SETS):
        X, y, truth = draw(s, seed)
        for j, model in enumerate(models.values()):
            risk[i, seed, j] = np.sum((model.fit(X, y).coef_ - truth) ** 2)
        weights[i] += [
            model.scheme_weights_.get(scheme, 0.0) / DATA_SETS for scheme in SCHEMES
        ]

print(
    "mean excess error, and the standard error of its difference to the adaptive "
    "ensemble"
)
print("columns with signal " + "".join(f"{name:>22}" for name in models))
for s, risks in zip(COLUMNS, risk, strict=True):
    spread = (risks - risks[:, -1:]).std(axis=0, ddof=1) / np.sqrt(DATA_SETS)
    print(
        f"{s:>19} "
        + "".join(
            f"{m:>13.3f} +- {e:.3f}"
            for m, e in zip(risks.mean(axis=0), spread, strict=True)
        )
    )

# %%
# On the sparsest signals the adaptive ensemble is better than the lasso; in between it is close to it, and on the dense
# signal it is as good as ridge regression.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
styles = (("#E69F00", "s--"), ("#009E73", "^-."), ("0.5", "v:"), ("#0072B2", "o-"))
for j, (name, (colour, style)) in enumerate(zip(models, styles, strict=True)):
    left.plot(COLUMNS, risk[:, :, j].mean(axis=1), style, color=colour, label=name)
left.set(
    xscale="log",
    yscale="log",
    xlabel="columns with signal, of 150",
    ylabel="excess error (signal: 1)",
)
left.legend(frameon=False)

bottom = np.zeros(len(COLUMNS))
colours = ("0.75", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "white")
for scheme, heights, colour in zip(SCHEMES, weights.T, colours, strict=True):
    right.bar(
        range(len(COLUMNS)),
        heights,
        0.7,
        bottom=bottom,
        color=colour,
        edgecolor="0.5",
        lw=0.5,
        label=scheme,
    )
    bottom += heights
right.set_xticks(range(len(COLUMNS)), COLUMNS)
right.set(xlabel="columns with signal, of 150", ylabel="weight in the ensemble")
right.legend(
    title="schemes",
    frameon=False,
    loc="center left",
    bbox_to_anchor=(1, 0.5),
    reverse=True,
)
left.set_xticks(COLUMNS, COLUMNS)
left.minorticks_off()
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# How schemes are weighed
# -----------------------
#
# Six sampling schemes are compared; each is fitted again in every fold, without the rows that it is judged by. Their
# weights minimise the error on held-out rows, and are shrunk towards ridge and the null model where the evidence is
# weak (heuristic). All but *uniform* and *null* draw determinantal members, plain least-squares fits whose mean is
# penalised least squares exactly (theorem): ridge regression, the lasso, and steps between and beyond.
#
# ``selected_`` names the columns that a sparse model would keep.

X, y, truth = draw(3, seed=0)
model = AdaptiveOLSEnsembleRegressor().fit(X, y)
print(
    "columns with signal:",
    np.flatnonzero(truth),
    "with coefficients",
    truth[:3].round(2),
)
print("selected columns:   ", np.flatnonzero(model.selected_))
print(
    "kept in this fraction of the folds:",
    model.selection_frequency_[model.selected_].round(2),
)
