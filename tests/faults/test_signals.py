"""Signals at random moments: heard at once, the estimator as it was, nothing left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from children import Child, Ended, coefficients, problem, same
from threadpoolctl import threadpool_info

from olsen import DropoutRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV, _execution

pytestmark = [pytest.mark.faults, pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forks")]

# seconds from the signal to the exception. A piece of compiled work is 0.1 s; the machine may be busy, and a member of
# the largest fit here takes a tenth of a second alone
LONGEST_TO_HEAR = 3.0


def fits(folder):
    """Models with data that take a second or so."""
    blocks = problem(150_000, 60)
    np.save(folder / "X.npy", blocks[0])
    half, tall = problem(6000, 400), problem(3000, 300)
    return {
        "max_samples=0.5": (OLSEnsembleRegressor(400, max_samples=0.5, random_state=0, n_jobs=2), half),
        "max_samples=0.5, one thread": (OLSEnsembleRegressor(200, max_samples=0.5, random_state=0), half),
        "shared Gram matrix": (OLSEnsembleRegressor(4000, random_state=0, n_jobs=2), tall),
        "minimum norm": (OLSEnsembleRegressor(80, max_features=0.9, random_state=0, n_jobs=2), problem(200, 2000)),
        "tuned": (OLSEnsembleRegressorCV(50, random_state=0, n_jobs=2), problem(800, 200)),
        "blocks": (OLSEnsembleRegressorCV(50, random_state=0, n_jobs=2), (folder / "X.npy", blocks[1])),
        "dropout": (DropoutRegressor(random_state=0), problem(2000, 300)),
    }


def blas():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def fit_until_interrupted(model, data, small, before, number):
    """When the interrupt was heard, and what it left behind."""
    try:
        model.fit(*data)
        time.sleep(60)  # the signal comes after the end
    except KeyboardInterrupt:
        heard = time.monotonic()
    wrong = []
    if model.coef_.tobytes() != before and not same(model.coef_, np.frombuffer(before)):
        wrong.append("estimator changed")
    if blas() != number:
        wrong.append(f"BLAS has {blas()} threads, had {number}")
    strangers = [t.name for t in threading.enumerate() if t is not threading.main_thread() and t.name != "olsen"]
    if strangers:
        wrong.append(f"threads {strangers}")
    coef = type(model)(**{**model.get_params(), "n_jobs": 2}).fit(*small[0]).coef_
    if not np.allclose(coef, small[1]):
        wrong.append("the next fit is another")
    return heard, wrong


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Models that were fitted, how long that took, and a small fit of their parameters."""
    found = {}
    for name, (model, data) in fits(tmp_path_factory.mktemp("blocks")).items():
        params = {"n_jobs": 2} if "n_jobs" in model.get_params() else {}
        small = problem(60, 10)
        small_coef = type(model)(**{**model.get_params(), **params}).fit(*small).coef_
        model.fit(*data)
        began = time.monotonic()
        model.fit(*data)
        found[name] = model, data, time.monotonic() - began, (small, small_coef)
    return found


@pytest.mark.parametrize(
    "name", ["max_samples=0.5", "max_samples=0.5, one thread", "shared Gram matrix", "minimum norm", "tuned", "blocks"]
)
def test_an_interrupt_at_a_random_moment(fault, prepared, name, seed):
    model, data, seconds, small = prepared[name]
    rng, row = np.random.default_rng([seed, len(name)]), fault(f"SIGINT, {name}")
    for delay in rng.uniform(0.0, 1.1 * seconds, 10):
        child = Child(fit_until_interrupted, model, data, small, model.coef_.tobytes(), blas())
        time.sleep(0.02 + delay)
        sent = child.send(signal.SIGINT)
        try:
            heard, wrong = child.answer()
        except (Ended, ValueError) as error:
            row.lose(str(error))
            continue
        if heard == "KeyboardInterrupt":  # on the way to the fit
            row.add("before the fit")
        elif isinstance(heard, str):
            row.lose(f"{heard}: {wrong}")
        elif wrong or heard - sent > LONGEST_TO_HEAR:
            row.lose(f"{wrong}, after {heard - sent:.2f} s")
        else:
            row.add("KeyboardInterrupt", heard - sent)


def interrupted_calls(model, data, number):
    """Fit while a real SIGINT comes at a certain call in the threads and BLAS; what it left behind."""
    folder, seen, before = os.path.dirname(_execution.__file__), 0, blas()
    coef = model.fit(*data).coef_

    def trace(frame, event, argument):
        nonlocal seen
        if not frame.f_code.co_filename.startswith(folder):
            return None
        if event == "call":  # where the interpreter itself looks for signals; at the end of a `with` it does not
            seen += 1
            if seen == number:
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        model.fit(*data)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    wrong = [] if blas() == before else [f"BLAS has {blas()} threads, had {before}"]
    if not same(model.fit(*data).coef_, coef):
        wrong.append("the next fit is another")
    return wrong, seen


def test_an_interrupt_at_every_call_in_our_threads(fault):
    """Not at random: call by call, so that none is missed by luck."""
    data, model = problem(400, 40), OLSEnsembleRegressor(30, max_samples=0.5, random_state=0, n_jobs=2)
    row, number = fault("SIGINT at each call in the thread and BLAS machinery"), 1
    while True:
        try:
            wrong, seen = Child(interrupted_calls, model, data, number).answer(longest=20)
        except (Ended, ValueError) as error:
            wrong, seen = [str(error)], number
        if seen < number:
            break
        row.lose(f"call {number}: {wrong}") if wrong else row.add("as before")
        number += 1


@pytest.mark.parametrize("number", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_the_command_is_ended_at_a_random_moment(fault, tmp_path, number, seed):
    """Outputs are whole or not there; a temporary file stays only where no code could run any more."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    X, y = problem(2000, 20)
    pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(20)} | {"y": y}), tmp_path / "t.parquet")
    outputs = ["--out", "m.skops", "--report", "r.html"]
    command = [sys.executable, "-m", "olsen", "fit", "t.parquet", "--target", "y", *outputs]
    began = time.monotonic()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "cwd": tmp_path, "text": True}
    assert subprocess.run(command, **quiet).returncode == 0
    seconds, row = time.monotonic() - began, fault(f"{number}, command")
    for delay in np.random.default_rng(seed).uniform(0.3, 1.0, 4) * seconds:
        for name in ("m.skops", "r.html"):
            (tmp_path / name).unlink(missing_ok=True)
        with subprocess.Popen(command, **quiet) as process:
            time.sleep(delay)
            sent = time.monotonic()
            process.send_signal(getattr(signal, number))
            said = process.communicate()[1]
        took, names = time.monotonic() - sent, {path.name for path in tmp_path.iterdir()} - {"t.parquet"}
        visible = {name for name in names if not name.startswith(".")}
        if "m.skops" in visible:
            coefficients(tmp_path / "m.skops")
        if "r.html" in visible and not (tmp_path / "r.html").read_text().rstrip().endswith("</html>"):
            row.lose("half a report")
        elif visible - {"m.skops", "r.html"} or (number == "SIGINT" and names != visible):
            row.lose(f"left {names}")
        elif number == "SIGINT" and process.returncode != 0 and (process.returncode, said) != (130, "olsen: stopped\n"):
            row.lose(f"{process.returncode} {said[-300:]}")
        else:
            row.add("whole or absent", took)
    assert subprocess.run(command, **quiet).returncode == 0
    visible = {path.name for path in Path(tmp_path).iterdir() if not path.name.startswith(".")}
    assert visible == {"t.parquet", "m.skops", "r.html"}
