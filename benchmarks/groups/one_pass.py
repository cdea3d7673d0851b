"""A tuned fit of a file beside a database that computes no more than its moments."""

from __future__ import annotations

import importlib.util
import tempfile
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV
from problems import linear
from timing import interleave, summary

from .text import duration

TITLE = "One pass over a file"
NOTE = (
    "Tuned fits of a Parquet file of Gaussian columns on two threads: reading, moments of three folds and"
    " the choice. DuckDB computes the sums of all products of two columns of the file in one query,"
    " the moments of all rows alone, with its own threads; Arrow and NumPy read batches of rows and"
    " add X'X. A library that is not installed has no entry."
)
SHAPES = [(1_000_000, 20), (1_000_000, 50)]
TOY_SHAPES = [(2000, 4)]


def run(quick: bool):
    for n, p in TOY_SHAPES if quick else SHAPES:
        yield measure(n, p, rounds=0 if quick else 3)


def measure(n: int, p: int, rounds: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "rows.parquet"))
        X, y = linear(n, p)
        names = [f"x{j}" for j in range(p)]
        table = pa.table({**dict(zip(names, X.T, strict=True)), "y": y})
        pq.write_table(table, path, row_group_size=max(1000, n // 20))
        del X, table
        contenders = {
            "AdaptiveOLSEnsembleRegressor": lambda: fit(AdaptiveOLSEnsembleRegressor, path),
            "OLSEnsembleRegressorCV": lambda: fit(OLSEnsembleRegressorCV, path),
            "Arrow and NumPy, moments": lambda: numpy_moments(path),
        }
        if importlib.util.find_spec("duckdb"):
            contenders["DuckDB, moments"] = lambda: duckdb_moments(path, [*names, "y"])
        measured = interleave(contenders, rounds)
    return {"shape": {"n": n, "p": p}, **summary(measured)}


def fit(model, path: str):
    return model(n_jobs=2, random_state=0).fit(path, "y")


def numpy_moments(path: str) -> np.ndarray:
    """Products of all columns, one batch of rows after another."""
    total = 0.0
    for batch in pq.ParquetFile(path).iter_batches():
        rows = np.column_stack([column.to_numpy() for column in batch.columns])
        total = total + rows.T @ rows
    return total


def duckdb_moments(path: str, names: list[str]) -> tuple:
    """Products of all columns by a query."""
    import duckdb

    sums = ", ".join(f"sum({a} * {b})" for a, b in combinations_with_replacement(names, 2))
    return duckdb.sql(f"select {sums} from read_parquet('{path}')").fetchall()


def cells(row):
    took = {name: duration(seconds) for name, seconds in row["seconds"].items()}
    return {"n, p": ", ".join(map(str, row["shape"].values())), **took}
