"""Threads: chunks in order, cores given back, BLAS held as asked."""

import os
import threading
import time

import pytest
from threadpoolctl import threadpool_info

from olsen._execution import pools
from olsen._execution.blas_threads import one_blas_thread


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_results_come_in_order_whatever_the_threads():
    expected = [(start, min(start + 3, 20)) for start in range(0, 20, 3)]
    for n_threads in (1, 2, 5):
        assert pools.map_chunks(lambda a, b: (a, b), 20, n_threads, chunk=3) == expected


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores of a thread")
def test_threads_may_use_all_cores_again_once_they_run():
    """They are put on a core of their own only to be woken there."""
    allowed, seen, meet = os.sched_getaffinity(0), {}, threading.Barrier(3)

    def work(start, stop):
        meet.wait(timeout=60)  # so that every thread takes a chunk
        seen[threading.get_ident()] = os.sched_getaffinity(0)

    for _ in range(2):  # the first time threads start, the second time they are woken
        seen.clear()
        pools.map_chunks(work, 3, 3, chunk=1)
        assert len(seen) == 3 and set(map(frozenset, seen.values())) == {frozenset(allowed)}
    assert os.sched_getaffinity(0) == allowed


def test_blas_gets_the_threads_of_the_caller_where_it_does_the_work():
    with one_blas_thread():
        assert pools.map_chunks(lambda a, b: blas_threads(), 1, 2, blas_threads=True) == [{2}]
        assert blas_threads() == {1}
    assert pools.map_chunks(lambda a, b: blas_threads(), 1, 2) == [{1}]


def test_limits_of_blas_that_overlap_in_threads_leave_nothing_behind():
    """The one that came first goes first; restoring what it found would be one too early, and then one too late."""
    before, inside, leave = blas_threads(), threading.Event(), threading.Event()

    def other():
        with one_blas_thread():
            inside.set()
            leave.wait(timeout=60)

    thread = threading.Thread(target=other)
    with one_blas_thread():
        thread.start()
        inside.wait(timeout=60)
    assert blas_threads() == {1}
    leave.set()
    thread.join()
    assert blas_threads() == before


def test_a_call_does_not_wait_for_threads_that_are_busy_elsewhere():
    busy, done = threading.Barrier(3), threading.Event()

    def long(start, stop):
        busy.wait(timeout=60)
        done.wait(timeout=60)

    thread = threading.Thread(target=pools.map_chunks, args=(long, 2, 2), kwargs={"chunk": 1})
    thread.start()
    busy.wait(timeout=60)  # the caller and the kept thread are both at it
    assert pools.map_chunks(lambda a, b: a, 6, 2, chunk=1) == list(range(6))
    assert thread.is_alive()
    done.set()
    thread.join()


def test_chunks_may_have_chunks_of_their_own():
    inner = lambda a, b: sum(pools.map_chunks(lambda c, d: c, 5, 2, chunk=1))  # noqa: E731
    assert pools.map_chunks(inner, 6, 2, chunk=1) == [10] * 6


def test_after_an_error_no_chunk_is_begun():
    begun, main = [], threading.get_ident()

    def work(start, stop):
        begun.append(start)
        if threading.get_ident() == main:
            raise ValueError("here")
        time.sleep(0.05)

    with pytest.raises(ValueError, match="here"):
        pools.map_chunks(work, 50, 2, chunk=1)
    count = len(begun)
    time.sleep(0.2)
    assert len(begun) == count < 50


def test_items_of_a_lane_keep_their_order():
    """Later items of a lane wait for earlier ones, and results come in the order of the items."""
    done = {0: [], 1: []}

    def work(item):
        time.sleep(0.02 if item < 4 else 0.0)  # the first ones take longest
        done[item % 2].append(item)
        return item

    assert list(pools.in_order(work, range(12), 4, lambda item: item % 2)) == list(range(12))
    assert done == {0: list(range(0, 12, 2)), 1: list(range(1, 12, 2))}


def test_an_error_in_a_thread_reaches_the_caller():
    def work(item):
        if item == 5:
            raise ValueError("the fifth")
        return item

    closed = []

    def items():
        try:
            yield from range(10)
        finally:
            closed.append(True)

    with pytest.raises(ValueError, match="the fifth"):
        list(pools.in_order(work, items(), 3, lambda item: item % 2))
    assert closed
