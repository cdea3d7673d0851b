"""Random tables of ordinary kinds, and harmless changes after which the model must be the same.

Gaussian columns hide defects. The tables here have full one-hot factors, rare columns, ties, repeated
rows, constant and duplicated columns, columns of very different units, and 20 to 999 rows, or more.
"""

from dataclasses import dataclass, replace

import numpy as np

KINDS = ("one-hot", "fingerprints", "ties", "mixed", "wide", "repeated", "no-signal", "tied-levels")


@dataclass(frozen=True)
class Table:
    """Training rows with targets, and new rows to predict."""

    kind: str
    X: np.ndarray
    y: np.ndarray
    new: np.ndarray

    @property
    def target_spread(self):
        return float(np.std(self.y))


def random_table(number, n_rows=None):
    """Table of a kind that changes from number to number; everything else is drawn."""
    rng = np.random.default_rng([number, 300])
    kind = KINDS[number % len(KINDS)]
    drawn_rows = int(np.exp(rng.uniform(np.log(20), np.log(999))))
    n_rows = drawn_rows if n_rows is None else n_rows
    n_new = 20
    X = _COLUMNS[kind](rng, n_rows + n_new)
    coef = rng.standard_normal(X.shape[1]) * (rng.random(X.shape[1]) < rng.choice([0.1, 1.0]))
    signal = (X - X.mean(axis=0)) @ coef
    noise = (
        rng.standard_normal(len(X)) * max(float(signal.std()), 1.0) * rng.choice([0.3, 1.0, 3.0])
    )
    y = noise if kind == "no-signal" else 5.0 + signal + noise
    if kind in ("ties", "repeated", "tied-levels"):
        step = float(y.std()) / 2
        y = step * np.round(y / step)
    if kind == "repeated":
        copies = rng.integers(0, n_rows, n_rows // 3)
        X[: len(copies)] = X[copies]
        y[: len(copies)] = y[copies]
    return Table(kind, X[:n_rows], y[:n_rows], X[n_rows:])


def _one_hot(rng, n_rows):
    n_levels = int(rng.integers(2, max(3, min(50, n_rows // 3))))
    factors = [n_levels, *rng.integers(2, 6, int(rng.integers(0, 4)))]
    return np.hstack([np.eye(k)[rng.integers(0, k, n_rows)] for k in factors])


def _fingerprints(rng, n_rows):
    n_columns = int(rng.integers(20, 300))
    return (rng.random((n_rows, n_columns)) < rng.beta(0.5, 5.0, n_columns)).astype(float)


def _ties(rng, n_rows):
    return rng.integers(0, 5, (n_rows, int(rng.integers(2, 30)))).astype(float)


def _mixed(rng, n_rows):
    numbers = rng.standard_normal((n_rows, int(rng.integers(2, 10)))) * 10.0 ** rng.uniform(-4, 4)
    counts = rng.poisson(2.0, (n_rows, 3)).astype(float)
    extra = np.column_stack(
        [numbers[:, 0], np.full(n_rows, 3.0), numbers[:, 1] + 1e-3 * rng.standard_normal(n_rows)]
    )
    return np.hstack([numbers, counts, extra, _one_hot(rng, n_rows)])


def _wide(rng, n_rows):
    n_columns = int(rng.integers(n_rows, 3 * n_rows)) if n_rows < 300 else 400
    factors = rng.standard_normal((n_rows, 5))
    return factors @ rng.standard_normal((5, n_columns)) + rng.standard_normal((n_rows, n_columns))


_COLUMNS = {
    "one-hot": _one_hot,
    "fingerprints": _fingerprints,
    "ties": _ties,
    "mixed": _mixed,
    "wide": _wide,
    "repeated": _ties,
    "no-signal": _mixed,
    "tied-levels": _one_hot,
}


def _other_units(table):
    rng = np.random.default_rng(5)
    factors = 10.0 ** rng.uniform(-3, 3, table.X.shape[1])
    return replace(table, X=table.X * factors, new=table.new * factors)


def _noise(table):
    noise = np.random.default_rng(6).standard_normal(len(table.y))
    return replace(table, y=table.y + 1e-14 * np.abs(table.y).max() * noise)


def _rows_in_another_order(table):
    order = np.random.default_rng(7).permutation(len(table.y))
    return replace(table, X=table.X[order], y=table.y[order])


def _columns_in_another_order(table):
    order = np.random.default_rng(8).permutation(table.X.shape[1])
    return replace(table, X=table.X[:, order], new=table.new[:, order])


# name -> (change of the table, what predictions of the changed table are divided by)
ROUNDING_CHANGES = {
    "as given": (lambda table: table, 1.0),
    "100 y": (lambda table: replace(table, y=100 * table.y), 100.0),
    "X + 1": (lambda table: replace(table, X=table.X + 1, new=table.new + 1), 1.0),
    "other units": (_other_units, 1.0),
    "noise": (_noise, 1.0),
}
SYMMETRIES = {
    "-y": (lambda table: replace(table, y=-table.y), -1.0),
    "row order": (_rows_in_another_order, 1.0),
    "column order": (_columns_in_another_order, 1.0),
}
