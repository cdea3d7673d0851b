"""
Can it learn from a file that does not fit into memory?
=======================================================

Members that use all rows only need sums over the rows: counts, means, X'X and X'y. The sums take one pass over a file,
and after it the cost of members does not depend on the number of rows. ``fit`` therefore takes paths, memory maps and
functions that yield blocks, and gives the same coefficients as for an array in memory.
"""

# %%
# Three kinds of input
# --------------------
#
# The files here are small, so that the page is quick and the answer can be compared with a fit in memory. Nothing
# changes with larger ones.

import tempfile
import tracemalloc
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor

folder = tempfile.TemporaryDirectory()
here = Path(folder.name)
rng = np.random.default_rng(0)
truth = np.linspace(1, 0, 40)
X = rng.standard_normal((50_000, 40))
y = X @ truth + rng.standard_normal(len(X))

np.save(here / "X.npy", X)
np.save(here / "y.npy", y)
pq.write_table(
    pa.table({**{f"x{j}": X[:, j] for j in range(40)}, "target": y}),
    here / "table.parquet",
)


def read_blocks():
    """Blocks of rows, from a database or an instrument, say; called again if a second
    pass is needed.
    """
    for start in range(0, len(X), 7000):
        yield X[start : start + 7000], y[start : start + 7000]


def new_model():
    return OLSEnsembleRegressor(200, max_features=15, random_state=0)


reference = new_model().fit(X, y)
fits = {
    "two .npy files": new_model().fit(here / "X.npy", here / "y.npy"),
    "Parquet": new_model().fit(here / "table.parquet", "target"),
    "a function that yields blocks": new_model().fit(read_blocks, None),
}
for name, model in fits.items():
    print(
        f"{name}: largest difference to the fit in memory "
        f"{np.abs(model.coef_ - reference.coef_).max():.1e}"
    )

# %%
# Rows that keep coming go to ``partial_fit``, with the same result.

stream = new_model()
for rows, targets in read_blocks():
    stream.partial_fit(rows, targets)
print(
    "partial_fit, 8 batches: largest difference "
    f"{np.abs(stream.coef_ - reference.coef_).max():.1e}"
)

# %%
# Tuning, intervals, standard errors
# ----------------------------------
#
# The tuned classes work on files, too. Sampling schemes are compared by 3-fold cross-validation, from sums over the
# folds that are made in the same pass; intervals and standard errors read the file again.

tuned = AdaptiveOLSEnsembleRegressor(random_state=0).fit(here / "X.npy", here / "y.npy")
size = tuned.inclusion_.sum()
print(
    f"{size:.1f} of 40 columns per member on average, error "
    f"{-tuned.best_score_:.3f} by {tuned.criterion_} (noise: 1)"
)
X_new = rng.standard_normal((4000, 40))
y_new = X_new @ truth + rng.standard_normal(len(X_new))
low, high = tuned.predict_interval(X_new, coverage=0.9).T
print(
    f"90 % intervals hold {np.mean((low <= y_new) & (y_new <= high)):.1%} of new rows"
)
print(
    f"standard errors of the coefficients: {tuned.coef_std().min():.4f} to "
    f"{tuned.coef_std().max():.4f}"
)

# %%
# What it takes
# -------------
#
# The fit holds a few blocks of rows and the sums, so that its memory grows far less than the file. ``tracemalloc``
# measures its peak.

megabytes, peaks = [], []
for blocks in (1, 2, 4, 8):
    path = here / f"X{blocks}.npy"
    grown = np.lib.format.open_memmap(
        path, "w+", dtype=np.float64, shape=(blocks * len(X), 40)
    )
    for b in range(blocks):
        grown[b * len(X) : (b + 1) * len(X)] = X
    grown.flush()
    del grown
    tracemalloc.start()
    new_model().fit(path, np.tile(y, blocks))
    peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
    tracemalloc.stop()
    megabytes.append(path.stat().st_size / 1e6)
    print(f"file of {megabytes[-1]:.0f} MB: {peaks[-1]:.0f} MB at most")

figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
ax.plot(megabytes, megabytes, "--", color="0.5", label="the file itself")
ax.plot(megabytes, peaks, "o-", color="#0072B2", label="memory of the fit")
ax.set(xlabel="size of the file (MB)", ylabel="memory (MB)", ylim=(0, None))
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()
folder.cleanup()
