"""Contenders that take turns, and what their times are held against."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["best", "clock", "interleave", "judged", "seconds", "summary"]

TURN = 1.0  # seconds a contender may use up in one turn
CALLS = 4  # most calls in one turn
REST = 0.06  # seconds before every call
SHORT = 4e-3  # seconds below which a call is made many times in a row
ROW = 0.02  # seconds of such a row
SLOW = 4.0  # seconds from which a contender gets one more turn only


def seconds(function: Callable) -> float:
    """Wall clock of one call.

    BLAS threads spin for some 20 ms after their last product; a pause lets those of the contender
    before fall asleep, so that everyone starts on idle cores. A core needs a while to wake up from
    it, longer than a short call takes: of those the mean of many in a row counts.
    """
    time.sleep(REST)
    took = clock(function, 1)
    return took if took >= SHORT else clock(function, int(ROW / took) + 1)


def clock(function: Callable, calls: int) -> float:
    """Seconds of a call, in a row of them."""
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def interleave(
    contenders: dict[str, Callable], rounds: int = 3, first: dict | None = None
) -> dict[str, list[float]]:
    """Times of all calls; contenders take turns (A B A B ...), so that a noisy moment hits all of
    them alike.

    Fast ones are called several times in a turn and slow ones sit out after the first round: the
    rule is the same for everyone. `first` holds times already taken. Nothing is warmed up here.
    """
    times = {
        name: list((first or {}).get(name, ())) or [seconds(call)]
        for name, call in contenders.items()
    }
    for turn in range(rounds):
        for name, call in contenders.items():
            if not turn or min(times[name]) <= SLOW:
                times[name] += one_turn(call)
    return times


def one_turn(call: Callable) -> list[float]:
    """One call, and more while there is time for another of the last one's length."""
    times = [seconds(call)]
    while len(times) < CALLS and sum(times) + times[-1] < TURN:
        times.append(seconds(call))
    return times


def best(times: dict[str, list[float]]) -> dict[str, float]:
    """Shortest time of every contender."""
    return {name: min(values) for name, values in times.items()}


def summary(times: dict[str, list[float]]) -> dict:
    """What is stored of the times: the best, the middle one, and how many there were."""
    middle = {name: sorted(values)[len(values) // 2] for name, values in times.items()}
    runs = {name: len(values) for name, values in times.items()}
    return {"seconds": best(times), "median_seconds": middle, "runs": runs}


def judged(
    value: float, must: float | None, aim: float | None = None, *, better: str = "more"
) -> dict:
    """The value with what it must be, what we aim at, and a word on which of them it meets.

    >>> judged(90.0, 80, 200)["verdict"], judged(1.2, 1.0, better="less")["verdict"]
    ('pass', 'FAIL')
    """
    sign = 1 if better == "more" else -1
    reached = [limit is not None and sign * value >= sign * limit for limit in (must, aim)]
    if must is None and aim is None:
        verdict = ""
    elif reached[1]:
        verdict = "pass, aim met"
    elif must is None:
        verdict = "aim missed"
    else:
        verdict = "pass" if reached[0] else "FAIL"
    return {"value": value, "must": must, "aim": aim, "better": better, "verdict": verdict}
