"""The groups of a benchmark run: each module has TITLE, NOTE, ``run(quick) -> rows`` and
``cells(row) -> dict``.

The run of those in FROM_A_FOLDER also takes the folder of tables, or None.
"""

from . import (
    choice,
    conformal,
    determinantal,
    figure,
    fit,
    fresh,
    growth,
    intervals,
    iteration,
    kernel,
    lasso,
    one_pass,
    predict,
    real,
    tables,
    threads,
    tuned,
    tuning,
)

__all__ = ["FROM_A_FOLDER", "GROUPS"]

GROUPS = {
    "fit": fit,
    "tables": tables,
    "growth": growth,
    "predict": predict,
    "kernel": kernel,
    "determinantal": determinantal,
    "choice": choice,
    "iteration": iteration,
    "tuned": tuned,
    "real": real,
    "threads": threads,
    "intervals": intervals,
    "tuning": tuning,
    "figure2": figure,
    "fresh": fresh,
    "lasso": lasso,
    "conformal": conformal,
    "one_pass": one_pass,
}
FROM_A_FOLDER = {"real", "conformal"}
