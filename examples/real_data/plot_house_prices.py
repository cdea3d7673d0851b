"""
What do forty neighbourhoods do to least squares?
=================================================

Tables of houses are full of categories. One-hot encoding turns categories into many columns of zeros and ones, some of
which are almost empty, and which add up to one another: the matrix has not even full rank. This page generates such
a table, with known premiums for every neighbourhood, and looks at what each model makes of the rare ones.
"""

# %%
# A table of houses
# -----------------
#
# Forty neighbourhoods, from hundreds of sales to one or two. The price follows area, age, condition and the premium
# of the neighbourhood.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

rng = np.random.default_rng(3)
NEIGHBOURHOODS = np.array([f"N{i:02d}" for i in range(40)])
premium = pd.Series(rng.normal(0, 40, 40), index=NEIGHBOURHOODS)  # thousands


def sell(n):
    """Table of n houses and their prices, in thousands."""
    popularity = 1 / np.arange(1, 41) ** 1.3
    houses = pd.DataFrame(
        {
            "area": rng.gamma(9, 15, n),
            "age": rng.uniform(0, 100, n),
            "neighbourhood": rng.choice(
                NEIGHBOURHOODS, n, p=popularity / popularity.sum()
            ),
            "condition": rng.choice(
                ["poor", "fair", "good", "renovated"], n, p=[0.1, 0.4, 0.4, 0.1]
            ),
            "heating": rng.choice(["gas", "oil", "heat pump", "district", "wood"], n),
        }
    )
    quality = houses["condition"].map(
        {"poor": -40, "fair": 0, "good": 20, "renovated": 60}
    )
    price = (
        100
        + 2.2 * houses["area"]
        - 0.6 * houses["age"]
        + quality
        + houses["neighbourhood"].map(premium)
    )
    return houses, price + rng.normal(0, 45, n)


houses, price = sell(300)
new_houses, new_price = sell(5000)
print(houses.head(4).to_string())
counts = houses["neighbourhood"].value_counts()
print(
    f"{len(counts)} neighbourhoods were seen; {(counts <= 3).sum()} were seen at "
    "most three times"
)

# %%
# Three models, one pipeline
# --------------------------
#
# Nothing is dropped from the encoding, so the columns of each category add up to one. The ensemble takes dependent
# columns as they are and finds the shortest solution, as scikit-learn's own least squares does.

from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from olsen import AdaptiveOLSEnsembleRegressor

encode = make_column_transformer(
    (StandardScaler(), ["area", "age"]),
    (
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        ["neighbourhood", "condition", "heating"],
    ),
    verbose_feature_names_out=False,
).set_output(transform="pandas")

models = {
    "least squares": make_pipeline(encode, LinearRegression()),
    "ridge": make_pipeline(encode, RidgeCV(alphas=np.logspace(-3, 4, 50))),
    "ensemble": make_pipeline(encode, AdaptiveOLSEnsembleRegressor(random_state=0)),
}
for name, model in models.items():
    model.fit(houses, price)
    error = np.sqrt(np.mean((model.predict(new_houses) - new_price) ** 2))
    print(f"{name:>13}: error on new houses {error:.1f} thousand")
encoded = encode.fit_transform(houses)
print(
    f"{encoded.shape[1]} columns of rank "
    f"{np.linalg.matrix_rank(encoded - encoded.mean())}"
)

# %%
# Rare neighbourhoods
# -------------------
#
# The premium of a neighbourhood with two sales is mostly noise, and least squares reproduces it. A member without its
# column predicts the overall mean for such houses; the average of the members lies between the two.

figure, axes = plt.subplots(
    1, 3, figsize=(9, 3.6), layout="constrained", sharex=True, sharey=True
)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    coef = pd.Series(model[-1].coef_, index=model[0].get_feature_names_out())
    found = coef[[f"neighbourhood_{place}" for place in counts.index]].to_numpy()
    known = premium[counts.index].to_numpy()
    miss = (
        found
        - np.average(found, weights=counts)
        - (known - np.average(known, weights=counts))
    )
    ax.axhline(0, color="0.7", lw=1)
    ax.plot(counts, miss, "o", ms=5, alpha=0.8, color="#0072B2")
    rare = counts.to_numpy() <= 3
    ax.set(xscale="log", xlabel="sales of the neighbourhood", title=name)
    ax.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    ax.spines[["top", "right"]].set_visible(False)
    print(
        f"{name:>13}: root mean square error of rare premiums "
        f"{np.sqrt(np.mean(miss[rare] ** 2)):5.1f} thousand"
    )
axes[0].set_ylabel("premium, estimated minus true\n(thousands)")
plt.show()

# %%
# What a price is made of
# -----------------------
#
# ``CoefficientDisplay`` takes the whole pipeline and the rows of the table; coefficients are multiplied by the
# standard deviations of their columns. The intervals are for the *expected* coefficient: shrinkage is not in them.
# Each interval repeats the tuning on parts of the rows, in some of which a rare neighbourhood is missing altogether.

from olsen.displays import CoefficientDisplay

ensemble = models["ensemble"]
display = CoefficientDisplay.from_estimator(ensemble, X=houses, top=12)
display.ax_.set_xlabel("effect of one standard deviation (thousands)")
plt.show()
