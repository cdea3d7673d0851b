"""
From a pipeline in Python to predictions from the shell
=======================================================

A model is of use where the new rows are, and that is not always Python. This page fits a pipeline with categories
and missing values, saves it with ``olsen.save``, and predicts a CSV file with the command ``olsen predict``. The
model file holds numbers and texts, no code: reading it executes nothing.
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
    price += table["state"].map({"worn": -150, "good": 0, "like new": 200}) + rng.normal(0, 120, n)
    table.loc[rng.random(n) < 0.1, "weight"] = np.nan
    return table, price.rename("price")


table, price = bicycles(400)
new_table, new_price = bicycles(600)
print(table.head(4).to_string())

# %%
# The pipeline
# ------------
#
# Nothing special: an ensemble is a scikit-learn regressor.

numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
encode = ColumnTransformer(
    [
        ("numbers", numbers, ["age", "weight"]),
        ("kind", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["kind"]),
        ("state", OrdinalEncoder(categories=[["worn", "good", "like new"]]), ["state"]),
    ]
)
pipeline = make_pipeline(encode, olsen.OLSEnsembleRegressorCV(random_state=0)).fit(table, price)
print(f"R2 on new bicycles: {pipeline.score(new_table, new_price):.3f}")

# %%
# Save, and predict from the shell
# --------------------------------
#
# The command is the one you would type: ``olsen predict bicycles.skops new.csv --interval 0.9``.

folder = tempfile.TemporaryDirectory()
here = Path(folder.name)
olsen.save(pipeline, here / "bicycles.skops", target="price")
new_table.to_csv(here / "new.csv", index=False)


def shell(*words):
    """What the command prints; it is called in this process here, to save its start."""
    with chdir(here), redirect_stdout(StringIO()) as printed:
        assert main(words) == 0
    return printed.getvalue()


answer = shell("predict", "bicycles.skops", "new.csv", "--interval", "0.9")
print("\n".join(answer.splitlines()[:4]))

from_shell = pd.read_csv(StringIO(answer))
difference = np.abs(from_shell["price"] - pipeline.predict(new_table)).max()
print(f"largest difference to Python: {difference:.1e}")

# %%
# What is in the file
# -------------------

print(shell("show", "bicycles.skops"))

# %%
# (Columns of numbers went through a ``StandardScaler``, so their coefficients are for one standard deviation.)
#
# The intervals are those of ``predict_interval``: the folds in which the model was chosen are in the file, and so are
# the training rows, for standard errors. A file also comes back as a pipeline, ``olsen.load("bicycles.skops")``.

from olsen.displays import IntervalDisplay

again = olsen.load(here / "bicycles.skops")
difference = np.abs(again.predict(new_table) - pipeline.predict(new_table)).max()
print(f"loaded again, largest difference: {difference:.1e}")

figure, axes = plt.subplots(2, 1, figsize=(7.2, 6), height_ratios=[2, 1], layout="constrained")
display = IntervalDisplay.from_predictions(
    new_price, from_shell["price"], from_shell[["lower", "upper"]], coverage=0.9, n_bins=5, ax=axes
)
display.ax_.set(ylabel="price", xlabel="predicted price")
plt.show()
folder.cleanup()
