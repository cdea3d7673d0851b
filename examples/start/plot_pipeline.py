"""
A pipeline in Python, and the same on the command line
======================================================

This page fits the same table, which has categories and missing values, twice: as a pipeline that ``olsen.save`` writes
and ``olsen.load`` reads, and as a CSV file with the commands ``olsen fit`` and ``olsen predict``. Model files hold
numbers and strings but no code, so that loading one executes nothing.
"""

# %%
# A table with everything in it
# -----------------------------

import tempfile
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import olsen
from olsen.cli import main

rng = np.random.default_rng(0)


def bicycles(n):
    """Used bicycles and the prices they were sold for."""
    table = pd.DataFrame(
        {
            "age": rng.gamma(2.0, 3.0, n).round(1),
            "weight": rng.normal(13, 2, n).round(1),
            "kind": rng.choice(["city", "road", "cargo", "mountain"], n),
            "state": rng.choice(["worn", "good", "like new"], n, p=[0.3, 0.5, 0.2]),
        }
    )
    price = 900 * np.exp(-0.08 * table["age"]) - 25 * (table["weight"] - 13)
    price += table["kind"].map({"city": 0, "road": 300, "cargo": 900, "mountain": 200})
    price += table["state"].map(
        {"worn": -150, "good": 0, "like new": 200}
    ) + rng.normal(0, 120, n)
    table.loc[rng.random(n) < 0.1, "weight"] = np.nan
    return table, price.rename("price")


table, price = bicycles(400)
new_table, new_price = bicycles(600)
print(table.head(4).to_string())

# %%
# The pipeline
# ------------
#
# An ensemble is a scikit-learn regressor, so that it goes into a pipeline like any other.

numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
encode = ColumnTransformer(
    [
        ("numbers", numbers, ["age", "weight"]),
        ("kind", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["kind"]),
        ("state", OrdinalEncoder(categories=[["worn", "good", "like new"]]), ["state"]),
    ]
)
pipeline = make_pipeline(
    encode, olsen.AdaptiveOLSEnsembleRegressor(random_state=0)
).fit(table, price)
print(f"R2 on new bicycles: {pipeline.score(new_table, new_price):.3f}")

# %%
# Save, and load
# --------------
#
# The file holds the fits of the cross-validation folds, from which intervals are computed, and the training rows, from
# which standard errors are computed.

folder = tempfile.TemporaryDirectory()
here = Path(folder.name)
olsen.save(pipeline, here / "bicycles.skops")
again = olsen.load(here / "bicycles.skops")
ends = olsen.predict_interval(again, new_table, coverage=0.9)
print(
    "loaded again, largest difference: "
    f"{np.abs(again.predict(new_table) - pipeline.predict(new_table)).max():.1e}"
)
print(
    "intervals hold "
    f"{np.mean((ends[:, 0] <= new_price) & (new_price <= ends[:, 1])):.1%} "
    "of the new prices"
)

# %%
# On the command line
# -------------------
#
# The command takes the table as it is, decides how columns become numbers, and prints what it decided. It only needs
# the name of the target and what to do with missing values.

table.assign(price=price).to_csv(here / "sold.csv", index=False)
new_table.to_csv(here / "new.csv", index=False)


def shell(*words):
    """What the command prints; it is called in this process here, to save its start."""
    with chdir(here), redirect_stdout(StringIO()) as printed:
        assert main(words) == 0
    return printed.getvalue()


options = [
    "--target",
    "price",
    "--missing",
    "mean",
    "--ordinal",
    "state=worn<good<like new",
]
print(shell("fit", "sold.csv", *options, "--out", "sold.skops"))

# %%
answer = shell("predict", "sold.skops", "new.csv", "--interval", "0.9")
print("\n".join(answer.splitlines()[:4]))

# %%
# What is in the file
# -------------------

print(shell("show", "sold.skops"))

# %%
# The intervals are the ones of ``predict_interval``. In Python, ``olsen.load("sold.skops")`` returns a pipeline.

from olsen.displays import IntervalDisplay

from_shell = pd.read_csv(StringIO(answer))
figure, axes = plt.subplots(
    2, 1, figsize=(7.2, 6), height_ratios=[2, 1], layout="constrained"
)
display = IntervalDisplay.from_predictions(
    new_price,
    from_shell["predicted_price"],
    from_shell[["lower", "upper"]],
    coverage=0.9,
    ax=axes,
)
display.ax_.set(ylabel="price", xlabel="predicted price")
plt.show()
folder.cleanup()
