"""The same training rows in every engine: arrays, frames, blocks, files, Dask, torch and streams."""

from contextlib import nullcontext
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn

ENGINES = ("memory", "sparse", "frame", "blocks", "npy", "parquet", "dask", "torch", "stream")
REQUIRED_LIBRARIES = {
    "frame": ("pandas",),
    "parquet": ("pyarrow", "pandas"),
    "dask": ("dask",),
    "torch": ("torch",),
}


def row_blocks(*arrays, size=70):
    """Return a function that yields the rows of arrays in blocks; arrays may be None."""
    present = [array for array in arrays if array is not None]
    starts = range(0, len(present[0]), size)
    return lambda: (tuple(array[start : start + size] for array in present) for start in starts)


def engines(folder, names=ENGINES):
    """Engines of which the library is installed; files are written to the folder."""
    return [
        Engine(name, folder)
        for name in names
        if all(find_spec(library) for library in REQUIRED_LIBRARIES.get(name, ()))
    ]


class Engine:
    """One way for rows to reach a model."""

    def __init__(self, name, folder):
        self.name = name
        self.folder = folder
        self.block_size = 70

    def context(self):
        if self.name == "torch":
            return sklearn.config_context(array_api_dispatch=True)
        return nullcontext()

    def new_rows(self, X):
        """Rows to predict, in the container that the engine was trained on where it has one."""
        if self.name in ("frame", "parquet"):
            names = [f"x{column}" for column in range(X.shape[1])]
            return pytest.importorskip("pandas").DataFrame(X, columns=names)
        if self.name == "sparse":
            return sp.csr_array(X)
        return self._stored(X) if self.name == "torch" else X

    def training_arguments(self, X, y, weight=None):
        """Arguments of `fit` in every engine but streams."""
        if self.name == "blocks":
            return row_blocks(X, y, weight, size=self.block_size), None, None
        if self.name == "parquet":
            return self._parquet(X, y, weight)
        if self.name in ("npy", "dask", "torch"):
            return tuple(None if array is None else self._stored(array) for array in (X, y, weight))
        return self.new_rows(X), y, weight

    def fit(self, model, X, y, weight=None):
        if self.name == "stream":
            for block in row_blocks(X, y, weight, size=self.block_size)():
                model.partial_fit(*block)
            return model
        with self.context():
            return model.fit(*self.training_arguments(X, y, weight))

    def ask(self, question, model, X):
        """Answer of the model to a question about new rows."""
        with self.context():
            return question(model, self.new_rows(X))

    def predict(self, model, X):
        return self.ask(lambda model, rows: np.asarray(model.predict(rows)), model, X)

    def _stored(self, array):
        if self.name == "dask":
            chunks = (self.block_size, *array.shape[1:])
            return pytest.importorskip("dask.array").from_array(array, chunks=chunks)
        if self.name == "torch":
            return pytest.importorskip("torch").asarray(array)
        path = self._new_path("npy")
        np.save(path, array)
        return path

    def _parquet(self, X, y, weight):
        table = self.new_rows(X).assign(target=y)
        if weight is not None:
            table["weight"] = weight
        path = self._new_path("parquet")
        table.to_parquet(path)
        return path, "target", None if weight is None else "weight"

    def _new_path(self, extension):
        n_files = len(list(self.folder.iterdir()))
        return self.folder / f"{n_files}.{extension}"
