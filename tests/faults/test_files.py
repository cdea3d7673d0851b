"""Files that are cut short, overwritten, replaced or deleted while they are read: the right answer or an error."""

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from children import Child, Ended, after, coefficients, one_line, problem, same

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV, cli

pytestmark = [pytest.mark.faults, pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forks")]

N, P = 80_000, 40
REPEATS = 4


def write_npy(folder, X, y):
    np.save(folder / "X.npy", X)
    return (folder / "X.npy", y), folder / "X.npy"


def write_npy_by_columns(folder, X, y):
    np.save(folder / "X.npy", np.asfortranarray(X))
    np.save(folder / "y.npy", y)
    return (folder / "X.npy", folder / "y.npy"), folder / "X.npy"


def write_parquet(folder, X, y):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])} | {"y": y})
    pq.write_table(table, folder / "t.parquet", row_group_size=10_000, compression="none")
    return (folder / "t.parquet", "y"), folder / "t.parquet"


def write_zarr(folder, X, y):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(str(folder / "X.zarr"), shape=X.shape, chunks=(10_000, X.shape[1]), dtype=X.dtype)
    array[:] = X
    return (folder / "X.zarr", y), folder / "X.zarr" / "c" / "6" / "0"


WRITERS = {"npy": write_npy, "npy, Fortran order": write_npy_by_columns, "Parquet": write_parquet, "Zarr": write_zarr}


def truncate(path):
    os.truncate(path, os.path.getsize(path) // 3)


def empty(path):
    os.truncate(path, 0)


def overwrite(path):
    """The same size, other numbers."""
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 3)
        file.write(np.full(200_000, 7.0).tobytes())


def replace(path):
    """Another whole file of the same kind takes its name."""
    os.replace(f"{path}.other", path)


FAULTS = {"cut short": truncate, "emptied": empty, "overwritten": overwrite, "replaced": replace, "deleted": os.unlink}


def fit_while(change, path, delay, model, data, coef, other):
    """How a fit ends whose file changes after a while."""
    before, thread = model.coef_.tobytes(), after(delay, lambda: change(path))
    try:
        fitted = model.fit(*data)
    except (ValueError, OSError) as error:
        thread.join()
        if model.coef_.tobytes() != before:
            return "estimator changed"
        return "error in words" if len(str(error)) > 20 else f"{type(error)} {error}"
    thread.join()
    if same(fitted.coef_, coef):
        return "right"
    return "right, of the new file" if same(fitted.coef_, other) else "WRONG"


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("what", FAULTS)
def test_a_file_changes_while_it_is_read(fault, tmp_path, kind, what, seed):
    (X, y), rng = problem(N, P), np.random.default_rng([seed, len(kind), len(what)])
    (tmp_path / "kept").mkdir()
    (tmp_path / "other").mkdir()
    data, victim = WRITERS[kind](tmp_path / "kept", X, y)
    other_data, other = WRITERS[kind](tmp_path / "other", X[::-1] + 1.0, y)
    row = fault(f"{kind} {what} while read")
    for i in range(REPEATS):
        make = (OLSEnsembleRegressor, OLSEnsembleRegressorCV)[i % 2]
        model = make(5, random_state=0, n_jobs=1 + i % 2)
        began = time.monotonic()
        coef = model.fit(*data).coef_
        seconds = time.monotonic() - began
        new = make(5, random_state=0).fit(*other_data).coef_
        saved = tmp_path / "saved"
        shutil.copyfile(victim, saved)
        shutil.copyfile(other, f"{victim}.other")
        if kind == "Zarr" and what == "deleted":  # before the fit has opened it: zeros, as zarr defines missing chunks
            victim.unlink()
            new = make(5, random_state=0).fit(*data).coef_
            shutil.copyfile(saved, victim)
        delay = rng.uniform(0, 0.8 * seconds)
        child = Child(fit_while, FAULTS[what], victim, delay, model, data, coef, new)
        row.judge(child, ("right", "right, of the new file", "error in words"))
        if os.path.exists(f"{victim}.other"):
            os.unlink(f"{victim}.other")
        shutil.copyfile(saved, victim)


def command_while(change, path, delay, arguments):
    thread = after(delay, lambda: change(path))
    code = cli.main(arguments)
    thread.join()
    return code


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_changes_while_the_command_reads_it(fault, tmp_path, suffix, seed, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    import pyarrow.csv as pv

    monkeypatch.chdir(tmp_path)
    X, y = problem(40_000, 20)
    table = pa.table({f"x{j}": X[:, j] for j in range(20)} | {"y": y})
    (pv.write_csv if suffix == "csv" else pq.write_table)(table, f"t.{suffix}")
    core = ["--out-of-core"] if suffix == "parquet" else []
    arguments = ["fit", f"t.{suffix}", "--target", "y", "--members", "5", *core]
    began = time.monotonic()
    assert cli.main([*arguments, "--out", "whole.skops"]) == 0
    seconds, coef = time.monotonic() - began, coefficients("whole.skops")
    shutil.copyfile(f"t.{suffix}", "saved")
    row, rng = fault(f"command, {suffix} cut short while read"), np.random.default_rng(seed)
    for i in range(REPEATS):
        latest = (0.05, 0.5)[i % 2]  # a table is read in a moment, blocks as long as the fit lasts
        try:
            run = [*arguments, "--out", "m.skops"]
            code = Child(
                command_while, truncate, f"t.{suffix}", rng.uniform(0, latest * seconds), run, stderr="err"
            ).answer()
        except Ended as error:
            row.lose(str(error))
            continue
        said = Path("err").read_text() if os.path.exists("err") else ""
        if code == 0:
            row.add("right") if same(coefficients("m.skops"), coef) else row.lose("WRONG")
        elif one_line(code, said) and not os.path.exists("m.skops"):
            row.add("one line, exit code 1")
        else:
            row.lose(f"{code}: {said[-300:]}")
        for name in ("err", "m.skops"):
            if os.path.exists(name):
                os.unlink(name)
        shutil.copyfile("saved", f"t.{suffix}")
