"""Files cut short, overwritten, replaced or deleted during a read: the right answer or an error."""

import os
import shutil
import time

import numpy as np
import pytest
from children import Child, after, coefficients, problem, same, table_of

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV, cli

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forks"),
]

N = 80_000
P = 40
REPEATS = 4
CLASSES = (OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor)


def write_npy(folder, X, y):
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    return (folder / "X.npy", folder / "y.npy"), folder / "X.npy"


def write_parquet(folder, X, y):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])} | {"y": y})
    pq.write_table(table, folder / "t.parquet", row_group_size=10_000, compression="none")
    return (folder / "t.parquet", "y"), folder / "t.parquet"


WRITERS = {
    "npy": write_npy,
    "npy, Fortran order": lambda folder, X, y: write_npy(folder, np.asfortranarray(X), y),
    "Parquet": write_parquet,
}


def overwrite(path):
    """Keep the size of a file and change numbers in it."""
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 3)
        file.write(np.full(200_000, 7.0).tobytes())


FAULTS = {
    "cut short": lambda path: os.truncate(path, os.path.getsize(path) // 3),
    "emptied": lambda path: os.truncate(path, 0),
    "overwritten": overwrite,
    "replaced": lambda path: os.replace(
        f"{path}.other", path
    ),  # by another whole file of the same kind
    "deleted": os.unlink,
}


def fit_while(fault, model, data, coefs):
    """How a fit ends whose file changes after a while."""
    change, path, delay = fault
    coef, other_coef = coefs
    original = model.coef_.tobytes()
    thread = after(delay, lambda: change(path))
    try:
        fitted = model.fit(*data)
    except (ValueError, OSError) as error:
        thread.join()
        if model.coef_.tobytes() != original:
            return "estimator changed"
        return "error in words" if len(str(error)) > 20 else f"{type(error)} {error}"
    thread.join()
    if same(fitted.coef_, coef):
        return "right"
    return (
        "right, of the new file"
        if other_coef is not None and same(fitted.coef_, other_coef)
        else "WRONG"
    )


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_changes_while_it_is_read(fault, tmp_path, kind, seed):
    X, y = problem(N, P)
    rng = np.random.default_rng([seed, len(kind)])
    for folder in ("kept", "other"):
        (tmp_path / folder).mkdir()
    data, victim = WRITERS[kind](tmp_path / "kept", X, y)
    other_file = WRITERS[kind](tmp_path / "other", X[::-1] + 1.0, y)[1]
    saved = tmp_path / "saved"
    spare = f"{victim}.other"
    shutil.copyfile(victim, saved)
    for i, (fault_name, change) in enumerate(list(FAULTS.items()) * REPEATS):
        model = CLASSES[i % 3](n_estimators=5, random_state=0, n_jobs=1 + i // 3 % 2)
        shutil.copyfile(other_file, spare)
        change(victim)
        try:
            new = model.fit(*data).coef_  # where the change comes before the file is opened
        except (ValueError, OSError):
            new = None
        shutil.copyfile(saved, victim)
        shutil.copyfile(other_file, spare)
        began = time.monotonic()
        coef = model.fit(*data).coef_
        delay = rng.uniform(0, 0.8 * (time.monotonic() - began))
        child = Child(fit_while, (change, victim, delay), model, data, (coef, new))
        fault(f"{kind} {fault_name} while read").judge(
            child, ("right", "right, of the new file", "error in words")
        )
        if os.path.exists(spare):
            os.unlink(spare)
        shutil.copyfile(saved, victim)


def command_while(path, delay, arguments):
    thread = after(delay, lambda: FAULTS["cut short"](path))
    code = cli.main(arguments)
    thread.join()
    return code


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_changes_while_the_command_reads_it(fault, tmp_path, suffix, seed, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if suffix == "csv":
        pytest.importorskip("pyarrow.csv").write_csv(table_of(40_000, 20), "t.csv")
    else:
        pytest.importorskip("pyarrow.parquet").write_table(table_of(40_000, 20), "t.parquet")
    core = ["--out-of-core"] if suffix == "parquet" else []
    arguments = ["fit", f"t.{suffix}", "--target", "y", "--members", "5", *core, "--out"]
    began = time.monotonic()
    assert cli.main([*arguments, "whole.skops"]) == 0
    seconds = time.monotonic() - began
    coef = coefficients("whole.skops")

    def damage(code):
        if code == 0:
            return "" if same(coefficients("m.skops"), coef) else "WRONG"
        return "a model" if os.path.exists("m.skops") else ""

    shutil.copyfile(f"t.{suffix}", "saved")
    row = fault(f"command, {suffix} cut short while read")
    rng = np.random.default_rng(seed)
    for i in range(REPEATS):
        delay = rng.uniform(
            0, (0.05, 0.5)[i % 2] * seconds
        )  # a table is read in a moment, blocks as long as the fit
        command = (f"t.{suffix}", delay, [*arguments, "m.skops"])
        row.command(tmp_path, damage, command_while, *command)
        (tmp_path / "m.skops").unlink(missing_ok=True)
        shutil.copyfile("saved", f"t.{suffix}")
