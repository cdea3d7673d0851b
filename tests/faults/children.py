"""Children of the test process: a fault that ends a process must not end the tests."""

import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback
import warnings

import numpy as np
import pytest

import olsen

LONGEST = 120.0  # seconds after which a child counts as hanging


class Ended(Exception):
    """A child ended without an answer."""


class Child:
    """``function(*arguments)`` in a fork of this process; what it returns or raises is the answer."""

    def __init__(self, function, *arguments, stderr=os.devnull):
        self.read, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is intended
            self.pid = os.fork()
        if not self.pid:
            _be_a_child(function, arguments, write, stderr)
        os.close(write)

    def answer(self, longest=LONGEST):
        """What the function returned, or the exception that it raised as (type, words); Ended if it
        died or hung.
        """
        received = b""
        until = time.monotonic() + longest
        part = None
        while part != b"":
            if not select.select([self.read], [], [], max(0.0, until - time.monotonic()))[0]:
                os.kill(self.pid, signal.SIGKILL)
                self._wait()
                raise Ended(f"hung for {longest:.0f} s")
            part = os.read(self.read, 1 << 16)
            received += part
        code = self._wait()
        if not received:
            raise Ended(f"died with {signal.Signals(-code).name if code < 0 else code}")
        return pickle.loads(received)

    def _wait(self):
        os.close(self.read)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _be_a_child(function, arguments, write, stderr):
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
        # pytest has replaced both streams
        sys.stderr = os.fdopen(2, "w")
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        try:
            answer = function(*arguments)
        except BaseException as error:
            answer = (type(error).__name__, str(error) or traceback.format_exc()[-300:])
        sys.stderr.flush()
        with open(write, "wb") as pipe:
            pickle.dump(answer, pipe)
        code = 0
    finally:
        os._exit(code)


def problem(n, p, seed=0):
    """Data of a linear model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, X @ rng.standard_normal(p) + rng.standard_normal(n)


def table_of(n, p):
    """Data of a linear model as an Arrow table with the target y."""
    X, y = problem(n, p)
    return pytest.importorskip("pyarrow").table({f"x{j}": X[:, j] for j in range(p)} | {"y": y})


def same(actual, coef):
    """Whether coefficients agree up to rounding: memory and threads may choose another solver."""
    return np.allclose(actual, coef, rtol=1e-6, atol=1e-8 * np.abs(coef).max())


def coefficients(path):
    """Coefficients of a model file of the command."""
    return olsen.load(path).steps[-1][1].coef_


def one_line(code, message):
    """Whether the command ended as it should where it cannot go on."""
    return (
        code == 1
        and message.startswith("olsen: ")
        and message.count("\n") == 1
        and len(message) > 10
    )


def after(seconds, function):
    """Call a function in a thread, in a while."""
    thread = threading.Timer(seconds, function)
    thread.daemon = True
    thread.start()
    return thread
