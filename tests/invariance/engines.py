"""The adaptive model of a table that is fitted from memory, files, Dask and torch, and its
predictions.
"""

import sklearn

from olsen import AdaptiveOLSEnsembleRegressor


def from_memory(table, folder):
    return new_model().fit(table.X, table.y).predict(table.new)


def from_npy(table, folder):
    import numpy as np

    np.save(folder / "X.npy", table.X)
    np.save(folder / "y.npy", table.y)
    return new_model().fit(folder / "X.npy", folder / "y.npy").predict(table.new)


def from_parquet(table, folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {f"c{j}": column for j, column in enumerate(table.X.T)}
    pq.write_table(pa.table({**columns, "target": table.y}), folder / "table.parquet")
    new_rows = pa.table({f"c{j}": column for j, column in enumerate(table.new.T)}).to_pandas()
    return new_model().fit(folder / "table.parquet", "target").predict(new_rows)


def from_dask(table, folder):
    import dask.array as da

    n_rows = max(1, len(table.y) // 3)
    X = da.from_array(table.X, chunks=(n_rows, -1))
    return new_model().fit(X, da.from_array(table.y, chunks=n_rows)).predict(table.new)


def from_torch(table, folder):
    import torch

    with sklearn.config_context(array_api_dispatch=True):
        model = new_model().fit(torch.tensor(table.X), torch.tensor(table.y))
        return model.predict(torch.tensor(table.new)).numpy()


def new_model():
    return AdaptiveOLSEnsembleRegressor(random_state=0)


# name -> (what predicts, libraries it needs)
ENGINES = {
    "memory": (from_memory, ()),
    "npy": (from_npy, ()),
    "parquet": (from_parquet, ("pyarrow", "pandas")),
    "dask": (from_dask, ("dask",)),
    "torch": (from_torch, ("torch",)),
}
