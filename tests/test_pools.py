"""Threads: chunks in order, cores given back, BLAS held as asked."""

import os
import threading
import time

import pytest
from threadpoolctl import threadpool_info

from olsen._execution import pools


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
        pools.map_chunks(work, 3, 3, chunk=1)
    assert len(seen) == 3 and set(map(frozenset, seen.values())) == {frozenset(allowed)}
    assert os.sched_getaffinity(0) == allowed


def test_blas_gets_the_threads_of_the_caller_where_it_does_the_work():
    with pools.one_blas_thread():
        assert pools.map_chunks(lambda a, b: blas_threads(), 1, 2, blas_threads=True) == [{2}]
        assert blas_threads() == {1}
    assert pools.map_chunks(lambda a, b: blas_threads(), 1, 2) == [{1}]


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

    with pytest.raises(ValueError, match="the fifth"):
        list(pools.in_order(work, range(10), 3, lambda item: item % 2))
