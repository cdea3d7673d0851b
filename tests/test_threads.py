"""Threads: chunks in order, helpers that come and go, BLAS held as asked, and what interrupts and endings do."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from loops import case
from olsen._execution import threads
from olsen._execution.threads import Sharing, one_blas_thread

SECONDS = 60  # for what should come at once
fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def run(code):
    """Run code in a new interpreter: its output, which must not hold an error."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=10 * SECONDS)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


@pytest.fixture
def two_busy_helpers():
    """A thread whose call keeps two helpers at work as long as the test lasts."""
    busy, done = threading.Barrier(4), threading.Event()

    def long(start, stop):
        busy.wait(timeout=SECONDS)
        done.wait(timeout=SECONDS)

    thread = threading.Thread(target=Sharing(3), args=(long, 3), kwargs={"chunk": 1})
    thread.start()
    busy.wait(timeout=SECONDS)
    yield thread
    done.set()
    thread.join()


# chunks


def test_results_come_in_order_whatever_the_threads():
    expected = [(start, min(start + 3, 20)) for start in range(0, 20, 3)]
    for n_threads in (1, 2, 5):
        assert Sharing(n_threads)(lambda a, b: (a, b), 20, chunk=3) == expected
    assert Sharing(3)(lambda a, b: (a, b), 0) == []


def test_progress_grows_up_to_the_number_of_items():
    for n_threads in (1, 3):
        told = []
        report = lambda done, told=told: told.append((done, threading.get_ident()))  # noqa: E731
        Sharing(n_threads, report)(lambda a, b: time.sleep(0.001), 20, chunk=3)
        numbers = [done for done, _ in told]
        assert numbers == sorted(set(numbers)) and numbers[-1] == 20
        assert {caller for _, caller in told} == {threading.get_ident()}


def test_a_call_does_not_wait_for_threads_that_are_busy_elsewhere(two_busy_helpers):
    assert Sharing(3)(lambda a, b: a, 6, chunk=1) == list(range(6))
    assert two_busy_helpers.is_alive()


def test_chunks_may_have_chunks_of_their_own():
    inner = lambda a, b: sum(Sharing(2)(lambda c, d: c, 5, chunk=1))  # noqa: E731
    assert Sharing(2)(inner, 6, chunk=1) == [10] * 6


def test_helpers_see_the_context_of_their_caller():
    """NumPy's error state, for one: a fit must not warn in one thread and raise in another."""
    meet, seen = threading.Barrier(2), []

    def work(start, stop):
        meet.wait(timeout=SECONDS)  # so that both threads take a chunk
        seen.append((threading.get_ident(), np.geterr()["over"]))

    with np.errstate(over="raise"):
        Sharing(2)(work, 2, chunk=1)
    assert len(dict(seen)) == 2 and set(dict(seen).values()) == {"raise"}


def test_after_an_error_no_chunk_is_begun():
    main = threading.get_ident()
    for raises in ("calling thread", "helper"):
        begun, meet = [], threading.Barrier(2)

        def work(start, stop, raises=raises, begun=begun, meet=meet):
            begun.append(start)
            if start < 2:
                meet.wait(timeout=SECONDS)
                if (threading.get_ident() == main) == (raises == "calling thread"):
                    raise ValueError("here")
                time.sleep(0.2)

        with case(raises), pytest.raises(ValueError, match="here"):
            Sharing(2)(work, 50, chunk=1)
        assert sorted(begun) == [0, 1]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals to a thread")
@pytest.mark.parametrize("while_waiting", [False, True])
def test_an_interrupt_surfaces_when_the_chunks_at_work_have_ended(while_waiting):
    """Whether the calling thread has a chunk of its own at the time, or has finished and waits for others."""
    main, at_work, ended = threading.get_ident(), threading.Event(), []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background ignores

    def work(start, stop):
        if threading.get_ident() != main:
            at_work.set()
            time.sleep(0.3)
            if while_waiting:
                signal.pthread_kill(main, signal.SIGINT)
                time.sleep(0.3)
            ended.append(start)
            return
        at_work.wait(timeout=SECONDS)
        if not while_waiting:
            raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            Sharing(2)(work, 2 if while_waiting else 50, chunk=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(ended) == 1
    assert Sharing(2)(lambda a, b: a, 6, chunk=1) == list(range(6))


# the interpreter's end, and children


def test_threads_may_work_on_while_the_main_thread_ends():
    """A thread that is not a daemon finishes its work with all results; a daemon is cut off, without a message."""
    for daemon in (True, False):
        printed = run(f"""if True:
            import threading, time
            from olsen._execution.threads import Sharing

            started = threading.Event()

            def fit():
                for i in range(40):
                    assert Sharing(3)(lambda a, b: (time.sleep(0.001), a)[1], 9, chunk=1) == list(range(9))
                    started.set()
                print("finished")

            threading.Thread(target=fit, daemon={daemon}).start()
            started.wait()
        """)
        assert printed == ("" if daemon else "finished\n")


def test_the_calling_thread_works_alone_where_no_thread_can_be_started():
    run("""if True:
        import atexit, threading
        from olsen._execution.threads import Sharing

        def refuse(self):
            raise RuntimeError("can't create new thread at interpreter shutdown")

        def late():  # the last that runs of a program
            threading.Thread.start = refuse
            assert Sharing(3)(lambda a, b: a, 9, chunk=1) == list(range(9))

        atexit.register(late)
    """)


@fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_starts_helpers_of_its_own_and_has_no_limit():
    before = blas_threads()
    Sharing(2)(lambda a, b: a, 4, chunk=1)
    with one_blas_thread():
        child = os.fork()
        if not child:
            code = 1
            try:
                meet = threading.Barrier(3)
                assert blas_threads() == before
                Sharing(3)(lambda a, b: meet.wait(timeout=SECONDS), 3, chunk=1)
                assert blas_threads() == before
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert blas_threads() == {1}
    assert blas_threads() == before


def test_spawned_children_work(tmp_path):
    script = tmp_path / "spawning.py"
    script.write_text("""if True:
        import multiprocessing
        from olsen._execution.threads import Sharing

        def work(n):
            return sum(Sharing(2)(lambda a, b: a, n, chunk=1))

        if __name__ == "__main__":
            assert work(5) == 10
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [3, 4]))
    """)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=10 * SECONDS)
    assert (done.stdout, done.stderr) == ("[3, 6]\n", "")


# BLAS


def test_blas_gets_the_threads_of_the_caller_where_it_does_the_work():
    with one_blas_thread():
        with Sharing(2).blas():
            assert blas_threads() == {2}
        assert blas_threads() == {1}
    assert Sharing(2)(lambda a, b: blas_threads(), 1) == [{1}]


class Context:
    """A context that is entered and left at our word, here or in a thread of its own."""

    def __init__(self, context, here=True):
        self.inside, self.worker = context, None if here else ThreadPoolExecutor(1)

    def _call(self, function, *arguments):
        if self.worker is None:
            return function(*arguments)
        return self.worker.submit(function, *arguments).result(timeout=SECONDS)

    def enter(self):
        self.inside = self._call(self.inside)
        self._call(self.inside.__enter__)

    def leave(self):
        self._call(self.inside.__exit__, None, None, None)


@pytest.fixture
def two():
    """BLAS with two threads, on any machine; numbers of one and three are then somebody's."""
    shared, _ = threads._libraries()
    undo = [(library, library.get_num_threads()) for library in shared]
    for library in shared:
        threads._set_shared_number(library, 2)
    yield
    for library, number in undo:
        threads._set_shared_number(library, number)


def test_limits_of_blas_that_overlap_in_threads_leave_nothing_behind(two):
    """The one that came first goes first; restoring what it found would be one too early, and then one too late."""
    first, second = Context(one_blas_thread, here=False), Context(one_blas_thread, here=False)
    first.enter()
    second.enter()
    first.leave()
    assert blas_threads() == {1}
    second.leave()
    assert blas_threads() == {2}


def test_a_limit_of_the_host_around_ours_within_it_or_across(two):
    """What the host has set is left alone, and threadpoolctl restores what it found."""
    for here in (True, False):
        for number in (1, 3):
            with case(here, number):
                limit = lambda number=number: threadpool_limits(number, user_api="blas")  # noqa: E731
                for outer in ("host", "ours"):
                    host, ours = Context(limit, here), Context(one_blas_thread)
                    first, second = (host, ours) if outer == "host" else (ours, host)
                    first.enter()
                    second.enter()
                    assert blas_threads() == {1 if second is ours else number}
                    second.leave()
                    assert blas_threads() == {number if first is host else 1}
                    first.leave()
                    assert blas_threads() == {2}
                host, ours = Context(limit, here), Context(one_blas_thread)
                host.enter()
                ours.enter()
                host.leave()
                with one_blas_thread():  # ours does not push what the host has set aside
                    assert blas_threads() == {2}
                ours.leave()
                assert blas_threads() == {2}
        host, ours = Context(lambda: threadpool_limits(3, user_api="blas"), here), Context(one_blas_thread)
        ours.enter()
        host.enter()
        with one_blas_thread():
            assert blas_threads() == {3}
        ours.leave()
        assert blas_threads() == {3}
        host.leave()
        assert blas_threads() == {1}, "threadpoolctl restores what it found; if it is 2, the docstring can say so"
        for library in threads._libraries()[0]:
            threads._set_shared_number(library, 2)


class FakeBlas:
    """A library with a number for each thread, as MKL."""

    def __init__(self):
        self.own = threading.local()

    def get_num_threads(self):
        return getattr(self.own, "number", 8)

    def set_num_threads(self, number):
        self.own.number = number


def test_where_blas_has_a_number_for_each_thread_only_ours_are_limited(monkeypatch):
    fake, meet = FakeBlas(), threading.Barrier(2)
    monkeypatch.setattr(threads, "_libraries", lambda: ([], [(fake, 8)]))
    monkeypatch.setattr(threads, "_pool", threads._pool.__wrapped__)  # with threads that know of the library

    def work(start, stop):
        meet.wait(timeout=SECONDS)
        return fake.get_num_threads()

    def elsewhere(found):
        thread = threading.Thread(target=lambda: found.append(fake.get_num_threads()))
        thread.start()
        thread.join()
        return found.pop()

    overlapping = Context(one_blas_thread, here=False)
    with one_blas_thread():
        assert elsewhere([]) == 8
        assert Sharing(2)(work, 2, chunk=1) == [1, 1]
        with Sharing().blas():
            assert fake.get_num_threads() == 8
        overlapping.enter()
    assert fake.get_num_threads() == 8
    overlapping.leave()
    assert fake.get_num_threads() == 8
