"""
Which ridge regression is this ensemble?
========================================

A large ensemble of least-squares fits behaves like ridge regression. On given data that can be made exact enough to
compute with: :mod:`olsen.equivalence` turns sizes of members into penalties and penalties into probabilities of
columns.
"""


# %%
# A penalty for every column
# --------------------------
#
# With :math:`G = X^\top X`, the mean over all members of size m applies some matrix B to :math:`X^\top y`, and the
# diagonal of :math:`BG` is :math:`m/p`, exactly. ``ridge_penalty`` finds the one diagonal penalty D for which
# :math:`(G + D)^{-1}` satisfies the same p equations. The equations are exact for the ensemble; that D alone describes
# it is a heuristic, so this page measures it.

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from olsen import OLSEnsembleRegressor, equivalence

X, y = load_diabetes(return_X_y=True, scaled=False)
X, y = X - X.mean(axis=0), y - y.mean()
spread = X.std(axis=0)


def ridge_with(penalty, X, y):
    return np.linalg.solve(X.T @ X + np.diag(penalty), X.T @ y)


def distance(found, reference, spread):
    """Of coefficients, in units of the columns."""
    return np.linalg.norm((found - reference) * spread) / np.linalg.norm(
        reference * spread
    )


SIZE = 4
ensemble = OLSEnsembleRegressor(4000, SIZE, random_state=0).fit(X, y)
penalty = equivalence.ridge_penalty(X, SIZE)
single = equivalence.isotropic_penalty(X / spread, SIZE)
candidates = {
    "penalty for every column": ridge_with(penalty, X, y),
    "one penalty, standardised": Ridge(alpha=single).fit(X / spread, y).coef_ / spread,
}
for name, coef in candidates.items():
    print(
        f"{name}: relative distance to 4000 members "
        f"{distance(coef, ensemble.coef_, spread):.3f}"
    )
other = OLSEnsembleRegressor(4000, SIZE, random_state=1).fit(X, y)
noise = distance(other.coef_, ensemble.coef_, spread) / np.sqrt(2)
print(f"of another draw of the members, about {noise:.3f}")

# %%
# On ten measurements of diabetes patients, two of which are nearly the same, D is closer than the single penalty with
# the same degrees of freedom, and not the ensemble itself.

figure, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
limit = 1.1 * np.abs(ensemble.coef_ * spread).max()
ax.plot([-limit, limit], [-limit, limit], color="0.7", lw=1)
for (name, coef), (colour, marker) in zip(
    candidates.items(), (("#0072B2", "o"), ("#E69F00", "s")), strict=True
):
    ax.plot(
        ensemble.coef_ * spread,
        coef * spread,
        marker,
        color=colour,
        ms=6,
        alpha=0.8,
        label=name,
    )
ax.set(
    xlabel="effect of a standard deviation, ensemble",
    ylabel="the same, ridge regression",
)
ax.set_title(f"{SIZE} of 10 columns in a member")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()

# %%
# Where it works, and where it does not
# -------------------------------------
#
# 200 rows and 60 columns: independent ones, ones that share a common factor, and ones along a line, where neighbours
# are correlated (0.8 to the power of their distance). Twenty columns in a member. A distance near the noise of the
# draw means that nobody could tell the two apart.

rng = np.random.default_rng(0)
white = rng.standard_normal((200, 60))
line = white.copy()
for j in range(1, 60):
    line[:, j] = 0.8 * line[:, j - 1] + 0.6 * white[:, j]
KINDS = {
    "independent": white,
    "own scales": white * np.logspace(0, 2, 60),
    "common factor": white + rng.standard_normal((200, 1)),
    "along a line": line,
}
found = []
for name, rows in KINDS.items():
    scale = rows.std(axis=0)
    target = rows / scale @ rng.standard_normal(60) + 4 * rng.standard_normal(200)
    rows, target = rows - rows.mean(axis=0), target - target.mean()
    model = OLSEnsembleRegressor(4000, 20, random_state=0).fit(rows, target)
    reference, other = (
        model.coef_,
        OLSEnsembleRegressor(4000, 20, random_state=1).fit(rows, target).coef_,
    )
    one = (
        Ridge(alpha=equivalence.isotropic_penalty(rows / scale, 20))
        .fit(rows / scale, target)
        .coef_
        / scale
    )
    found.append(
        [
            distance(
                ridge_with(equivalence.ridge_penalty(rows, 20), rows, target),
                reference,
                scale,
            ),
            distance(one, reference, scale),
            distance(other, reference, scale) / np.sqrt(2),
        ]
    )
    all_penalties, one_penalty, noise = found[-1]
    print(
        f"{name:>14}: penalties {all_penalties:.3f}, one penalty "
        f"{one_penalty:.3f}, noise of the draw {noise:.3f}"
    )

# %%

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
places = np.arange(len(KINDS))
for j, (name, colour, marker) in enumerate(
    (
        ("penalty for every column", "#0072B2", "o"),
        ("one penalty, standardised", "#E69F00", "s"),
    )
):
    ax.plot(places, np.array(found)[:, j], marker, color=colour, ms=7, label=name)
ax.plot(
    places,
    np.array(found)[:, 2],
    "_",
    color="black",
    ms=24,
    mew=2,
    label="noise of the draw",
)
ax.set_xticks(places, KINDS)
ax.set(
    xlabel="columns",
    ylabel="relative distance to 4000 members",
    ylim=(0, None),
    xlim=(-0.5, len(KINDS) - 0.5),
)
ax.legend(frameon=False, loc="upper left")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The other way
# -------------
#
# ``inclusion_probabilities(X, penalty)`` are the probabilities with which members mimic a given ridge regression;
# their sum is its degrees of freedom (exact). An ensemble takes the probabilities as ``max_features``, with a coin
# flip for every column.

wanted = Ridge(alpha=50.0).fit(white, white @ np.ones(60))
probabilities = equivalence.inclusion_probabilities(white, 50.0)
mimic = OLSEnsembleRegressor(
    4000, probabilities, sampling="bernoulli", random_state=0
).fit(white, white @ np.ones(60))
print(f"degrees of freedom of the ridge regression: {probabilities.sum():.1f} of 60")
print(
    "relative distance of the ensemble to it: "
    f"{distance(mimic.coef_, wanted.coef_, 1.0):.3f}"
)
