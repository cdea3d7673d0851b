"""Threads: chunks in order, helpers that come and go, BLAS held as asked, and what interrupts and
endings do.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_info, threadpool_limits

from loops import case
from olsen import OLSEnsembleRegressor
from olsen._execution.caching import cached_property
from olsen._execution.threads import Threads, one_blas_thread

SECONDS = 60  # for what should come at once


def blas_threads():
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


def first_items(n_threads, n_items=6):
    return Threads(n_threads)(lambda a, b: a, n_items, chunk=1)


# chunks


def test_results_come_in_order_and_progress_grows_whatever_the_threads():
    for n_threads in (1, 2, 5):
        reports = []
        expected = [(start, min(start + 3, 20)) for start in range(0, 20, 3)]
        report = lambda done, reports=reports: reports.append((done, threading.get_ident()))  # noqa: E731
        assert (
            Threads(n_threads, report)(lambda a, b: time.sleep(0.001) or (a, b), 20, chunk=3)
            == expected
        )
        numbers = [done for done, _ in reports]
        assert numbers == sorted(set(numbers)) and numbers[-1] == 20
        assert {caller for _, caller in reports} == {threading.get_ident()}
        assert Threads(n_threads)(lambda a, b: (a, b), 0) == []
    # chunks may have chunks of their own
    assert Threads(2)(lambda a, b: sum(first_items(2, 5)), 6, chunk=1) == [10] * 6


def test_a_call_does_not_wait_for_threads_that_are_busy_elsewhere():
    busy = threading.Barrier(4)
    done = threading.Event()

    def long(start, stop):
        busy.wait(timeout=SECONDS)
        done.wait(timeout=SECONDS)

    thread = threading.Thread(target=Threads(3), args=(long, 3), kwargs={"chunk": 1})
    thread.start()
    busy.wait(timeout=SECONDS)
    assert first_items(3) == list(range(6)) and thread.is_alive()
    done.set()
    thread.join()


def test_helpers_see_the_context_of_their_caller():
    """NumPy's error state, for one: a fit must not warn in one thread and raise in another."""
    meet = threading.Barrier(2)
    seen = {}

    def work(start, stop):
        meet.wait(timeout=SECONDS)  # so that both threads take a chunk
        seen[threading.get_ident()] = np.geterr()["over"]

    with np.errstate(over="raise"):
        Threads(2)(work, 2, chunk=1)
    assert len(seen) == 2 and set(seen.values()) == {"raise"}


def test_after_an_error_no_chunk_is_begun():
    main = threading.get_ident()
    for raises in ("calling thread", "helper"):
        begun = []
        meet = threading.Barrier(2)

        def work(start, stop, raises=raises, begun=begun, meet=meet):
            begun.append(start)
            if start < 2:
                meet.wait(timeout=SECONDS)
                if (threading.get_ident() == main) == (raises == "calling thread"):
                    raise ValueError("here")
                time.sleep(0.1)

        with case(raises), pytest.raises(ValueError, match="here"):
            Threads(2)(work, 50, chunk=1)
        assert sorted(begun) == [0, 1]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals to a thread")
def test_an_interrupt_surfaces_when_the_chunks_at_work_have_ended():
    """The calling thread may have a chunk at the time, or have finished and wait for
    others.
    """
    main = threading.get_ident()
    old_handler = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # which a job in the background ignores
    for while_waiting in (False, True):
        at_work = threading.Event()
        ended = []

        def work(start, stop, while_waiting=while_waiting, at_work=at_work, ended=ended):
            if threading.get_ident() != main:
                at_work.set()
                time.sleep(0.1)
                if while_waiting:
                    signal.pthread_kill(main, signal.SIGINT)
                    time.sleep(0.1)
                ended.append(start)
                return
            at_work.wait(timeout=SECONDS)
            if not while_waiting:
                raise KeyboardInterrupt

        try:
            with case(while_waiting), pytest.raises(KeyboardInterrupt):
                Threads(2)(work, 2 if while_waiting else 50, chunk=1)
        finally:
            signal.signal(
                signal.SIGINT, signal.default_int_handler if not while_waiting else old_handler
            )
        assert len(ended) == 1 and first_items(2) == list(range(6))


# the interpreter's end, and children

ENDING = """
import atexit, multiprocessing, threading, time
from olsen._execution.threads import Threads

def work(n):
    return sum(Threads(3)(lambda a, b: (time.sleep(0.001), a)[1], n, chunk=1))

def fit(times, started):
    for i in range(times):
        assert work(9) == 36
        started.set()
    print("finished")

def refuse(self):
    raise RuntimeError("can't create new thread at interpreter shutdown")

def late():  # the last that runs of a program
    threading.Thread.start = refuse
    assert work(9) == 36
    print("late")

if __name__ == "__main__":
    atexit.register(late)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(work, [3, 4]) == [3, 6]
    for daemon, times in ((True, 10**9), (False, 40)):
        started = threading.Event()
        threading.Thread(target=fit, args=(times, started), daemon=daemon).start()
        started.wait()
"""


def test_threads_at_the_end_of_the_main_one_and_in_spawned_children(tmp_path):
    """A thread finishes its work with all results; a daemon is cut off, without a message.

    Where no thread can be started any more, the calling one does it all.
    """
    script = tmp_path / "ending.py"
    script.write_text(ENDING)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=10 * SECONDS
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "finished\nlate\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_starts_new_helpers_and_has_no_limit():
    threads_at_start = blas_threads()
    first_items(2)
    with one_blas_thread():
        child = os.fork()
        if not child:
            code = 1
            try:
                meet = threading.Barrier(3)
                assert blas_threads() == threads_at_start
                Threads(3)(lambda a, b: meet.wait(timeout=SECONDS), 3, chunk=1)
                assert blas_threads() == threads_at_start
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert blas_threads() == {1}
    assert blas_threads() == threads_at_start


def test_computing_a_cached_value_blocks_no_other_thread():
    begun = threading.Event()
    go = threading.Event()

    class Lazy(list):
        @cached_property
        def value(self):
            begun.set()
            return bool(self) or go.wait(SECONDS)

    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(lambda: Lazy().value)
        assert begun.wait(SECONDS) and pool.submit(lambda: Lazy("x").value).result(
            timeout=SECONDS / 2
        )
        assert not slow.done()  # a fork here would keep a lock that is never released
        go.set()


# BLAS


class Context:
    """A context that is entered and left by calls, in this thread or in a separate one."""

    def __init__(self, context, in_this_thread=True):
        self.inside = context
        self.worker = None if in_this_thread else ThreadPoolExecutor(1)

    def _call(self, function, *arguments):
        if self.worker is None:
            return function(*arguments)
        return self.worker.submit(function, *arguments).result(timeout=SECONDS)

    def enter(self):
        self.inside = self._call(self.inside)
        self._call(self.inside.__enter__)
        return self

    def leave(self):
        self._call(self.inside.__exit__, None, None, None)


@pytest.fixture
def two():
    """BLAS with two threads, on any machine; numbers of one and three are then somebody's."""
    with threadpool_limits(2, user_api="blas"):
        yield


def test_nested_limits_of_threads_are_undone_in_any_order(two):
    """Two limits in two threads, of which the first to come is the first to go: the last to go
    restores the number of threads before both.
    """
    first = Context(one_blas_thread, in_this_thread=False).enter()
    second = Context(one_blas_thread, in_this_thread=False).enter()
    first.leave()
    assert blas_threads() == {1}
    second.leave()
    assert blas_threads() == {2}
    with one_blas_thread():
        with Threads(2).blas():
            assert blas_threads() == {2}
            # within a larger number, work of members is limited again
            assert Threads(2)(lambda a, b: blas_threads(), 1) == [{1}]
        assert blas_threads() == {1}


def test_limits_of_the_host_around_or_within_a_limit_of_olsen(two):
    for number in (1, 3):
        for in_this_thread in (True, False):
            host = Context(
                lambda number=number: threadpool_limits(number, user_api="blas"), in_this_thread
            )
            with case(number, in_this_thread, "around"):
                host.enter()
                with one_blas_thread():
                    assert blas_threads() == {1}
                assert blas_threads() == {number}
                host.leave()
                assert blas_threads() == {2}
            host = Context(
                lambda number=number: threadpool_limits(number, user_api="blas"), in_this_thread
            )
            with case(number, in_this_thread, "within"):
                with one_blas_thread():
                    host.enter()
                    assert blas_threads() == {number}
                    host.leave()
                    assert blas_threads() == {1}
                assert blas_threads() == {2}


def test_fits_from_several_threads_at_once_agree_and_leave_the_number_of_threads(two):
    """Fits have different settings; a fit alone with one thread is the same up to rounding."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 30))
    y = X.sum(axis=1) + rng.standard_normal(300)
    settings = [{}, {"max_samples": 0.5}, {"solver": "masked_cg"}]

    def fit(i, n_jobs=None):
        return (
            OLSEnsembleRegressor(40, random_state=0, n_jobs=n_jobs or 1 + i % 4, **settings[i % 3])
            .fit(X, y)
            .coef_
        )

    alone = [fit(i, n_jobs=1) for i in range(3)]
    assert blas_threads() == {2}
    with ThreadPoolExecutor(6) as several:
        for i, coef in enumerate(several.map(fit, range(12))):
            with case(i):
                assert_allclose(coef, alone[i % 3], rtol=1e-9)
    assert blas_threads() == {2}
