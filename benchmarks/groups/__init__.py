"""The groups of a benchmark run: each module has TITLE, NOTE, ``run(quick) -> rows`` and ``cells(row) -> dict``."""

from . import choice, figure, fit, fresh, iteration, kernel, predict, tuning

__all__ = ["GROUPS"]

GROUPS = {
    "fit": fit,
    "predict": predict,
    "kernel": kernel,
    "choice": choice,
    "iteration": iteration,
    "tuning": tuning,
    "figure2": figure,
    "fresh": fresh,
}
