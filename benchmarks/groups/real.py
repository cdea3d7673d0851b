"""Tuned fits against RidgeCV on all tables of a folder."""

from __future__ import annotations

from pathlib import Path

from sklearn.preprocessing import StandardScaler

from real_data import read

from . import tuned

TITLE = "Tuned fits of real data"
NOTE = (
    "As the tuned fits above, for every CSV file of the folder given with `--data` (numbers, with a"
    " header and a column `target`), after a StandardScaler. There is no limit here: the ratio is"
    " our time over RidgeCV's."
)
TOY_ROWS, TOY_COLUMNS = 60, 20


def run(quick: bool, data: Path | None = None):
    if data is None or not data.is_dir():
        where = (
            "no folder was given (--data DIR)"
            if data is None
            else f"the folder {data} is not there"
        )
        print(f"  skipped: {where}")
        return
    files = sorted(data.glob("*.csv"))
    if not files:
        print(f"  skipped: the folder {data} has no CSV files")
    for path in files:
        X, y = read(path)
        if quick:
            X, y = X[:TOY_ROWS, :TOY_COLUMNS], y[:TOY_ROWS]
        yield tuned.measure(
            path.stem, StandardScaler().fit_transform(X), y, None, None, rounds=0 if quick else 1
        )


def cells(row):
    return tuned.cells(row)
