"""
How does it run on a cluster?
=============================

Give ``fit`` a Dask collection instead of an array. Every worker sums over its own rows, and only the sums are sent
and merged. The cluster of this page is one machine with two workers in threads; a real one needs another ``Client``
and no other change.
"""

# %%
# A collection in chunks
# ----------------------

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client, LocalCluster

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor

cluster = LocalCluster(
    n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
)
client = Client(cluster)

random = da.random.default_rng(0)
X = random.standard_normal((20_000, 30), chunks=(2_500, 30))
truth = np.where(np.arange(30) < 8, np.linspace(1, 0.2, 30), 0.0)
y = X @ truth + 5 * random.standard_normal(20_000, chunks=2_500)
X, y = client.persist([X, y])  # drawn once, kept on the workers
print(X)

# %%
# The same numbers as from an array
# ---------------------------------
#
# Member i depends on the seed and on i alone, wherever it is solved.

on_cluster = OLSEnsembleRegressor(300, max_features=12, random_state=0).fit(X, y)
X_here, y_here = X.compute(), y.compute()
in_memory = OLSEnsembleRegressor(300, max_features=12, random_state=0).fit(
    X_here, y_here
)
print(
    "largest difference of coefficients: "
    f"{np.abs(on_cluster.coef_ - in_memory.coef_).max():.1e}"
)
print("prediction of a Dask array is one:", on_cluster.predict(X))

# %%
# Tuned on the cluster
# --------------------
#
# Folds are sums as well, so that all sampling schemes are compared in one pass over the data. Standard errors of the
# coefficients repeat the choice on random subsets of twenty groups of rows (heuristic). Columns 0 to 7 have a signal,
# the other 22 have none; of 22 intervals for 90 % some are expected to exclude zero by chance.

from olsen.displays import CoefficientDisplay

tuned = AdaptiveOLSEnsembleRegressor(random_state=0).fit(X, y)
print(
    f"criterion {tuned.criterion_}, error {-tuned.best_score_:.2f}; the noise "
    "has variance 25"
)
print(f"columns a sparse model would keep: {np.flatnonzero(tuned.selected_)}")

display = CoefficientDisplay.from_estimator(tuned, top=12)
display.ax_.set_xlabel("coefficient")
plt.show()

client.close()
cluster.close()
