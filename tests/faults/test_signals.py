"""Signals at random moments: heard at once, the estimator as it was, nothing left behind."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from children import Child, Ended, problem, same
from threadpoolctl import threadpool_info

from olsen import (
    AdaptiveOLSEnsembleRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    _execution,
)

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forks"),
]

# seconds from the signal to the exception. A piece of compiled work is 0.1 s; the machine may be
# busy, and a member of the largest fit here takes a tenth of a second alone
LONGEST_TO_HEAR = 3.0


# models that take a second or so, with the shape of their data
FITS = {
    "max_samples=0.5": (
        OLSEnsembleRegressor(400, max_samples=0.5, random_state=0, n_jobs=2),
        (6000, 400),
    ),
    "max_samples=0.5, one thread": (
        OLSEnsembleRegressor(200, max_samples=0.5, random_state=0),
        (6000, 400),
    ),
    "shared Gram matrix": (OLSEnsembleRegressor(4000, random_state=0, n_jobs=2), (3000, 300)),
    "minimum norm": (
        OLSEnsembleRegressor(80, max_features=0.9, random_state=0, n_jobs=2),
        (200, 2000),
    ),
    "size tuned": (OLSEnsembleRegressorCV(50, random_state=0, n_jobs=2), (800, 200)),
    "adaptive": (
        AdaptiveOLSEnsembleRegressor(n_estimators=50, random_state=0, n_jobs=2),
        (800, 200),
    ),
    "blocks": (
        AdaptiveOLSEnsembleRegressor(n_estimators=50, random_state=0, n_jobs=2),
        (150_000, 60),
    ),
}


def blas():
    return [
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    ]


def fit_until_interrupted(model, data, small, state):
    """When the interrupt was heard, and what it left behind."""
    original, number = state
    try:
        model.fit(*data)
        time.sleep(60)  # the signal comes after the end
    except KeyboardInterrupt:
        heard = time.monotonic()
    wrong = []
    if model.coef_.tobytes() != original and not same(model.coef_, np.frombuffer(original)):
        wrong.append("estimator changed")
    if blas() != number:
        wrong.append(f"BLAS has {blas()} threads, had {number}")
    strangers = [
        t.name
        for t in threading.enumerate()
        if t is not threading.main_thread() and not t.name.startswith("olsen")
    ]
    if strangers:
        wrong.append(f"threads {strangers}")
    coef = type(model)(**model.get_params()).fit(*small[0]).coef_
    if not np.allclose(coef, small[1]):
        wrong.append("the next fit is another")
    return heard, wrong


@pytest.mark.parametrize("name", FITS)
def test_an_interrupt_at_a_random_moment(fault, name, seed, tmp_path):
    model, shape = FITS[name]
    small = problem(60, 10)
    data = problem(*shape)
    small_coef = type(model)(**model.get_params()).fit(*small).coef_
    if name == "blocks":
        np.save(tmp_path / "X.npy", data[0])
        data = tmp_path / "X.npy", data[1]
    model.fit(*data)
    began = time.monotonic()
    model.fit(*data)
    seconds = time.monotonic() - began
    rng = np.random.default_rng([seed, len(name)])
    row = fault(f"SIGINT, {name}")
    for delay in rng.uniform(0.0, 1.1 * seconds, 10):
        child = Child(
            fit_until_interrupted, model, data, (small, small_coef), (model.coef_.tobytes(), blas())
        )
        time.sleep(0.02 + delay)
        sent = time.monotonic()
        os.kill(child.pid, signal.SIGINT)
        try:
            heard, wrong = child.answer()
        except (Ended, ValueError) as error:
            row.lose(str(error))
            continue
        if heard == "KeyboardInterrupt":  # on the way to the fit
            row.add("before the fit")
        elif isinstance(heard, str) or wrong or heard - sent > LONGEST_TO_HEAR:
            row.lose(f"{heard}: {wrong}, sent {sent}")
        else:
            row.add("KeyboardInterrupt", heard - sent)


def interrupted_calls(model, data, number):
    """Fit while a real SIGINT comes at a certain call in the threads and BLAS; what it left behind."""
    folder = os.path.dirname(_execution.__file__)
    seen = 0
    n_threads = blas()
    coef = model.fit(*data).coef_

    def trace(frame, event, argument):
        nonlocal seen
        if not frame.f_code.co_filename.startswith(folder):
            return None
        if (
            event == "call"
        ):  # where the interpreter itself looks for signals; at the end of a `with` it does not
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
    wrong = [] if blas() == n_threads else [f"BLAS has {blas()} threads, had {n_threads}"]
    if not same(model.fit(*data).coef_, coef):
        wrong.append("the next fit is another")
    return wrong, seen


def test_an_interrupt_at_every_call_in_our_threads(fault):
    """Not at random: call by call, so that none is missed by luck."""
    data = problem(400, 40)
    model = OLSEnsembleRegressor(30, max_samples=0.5, random_state=0, n_jobs=2)
    row = fault("SIGINT at each call in the thread and BLAS machinery")
    number = 1
    while True:
        try:
            wrong, seen = Child(interrupted_calls, model, data, number).answer(longest=20)
        except (Ended, ValueError) as error:
            wrong = [str(error)]
            seen = number
        if seen < number:
            break
        row.lose(f"call {number}: {wrong}") if wrong else row.add("as before")
        number += 1
