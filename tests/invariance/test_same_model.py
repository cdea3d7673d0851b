"""One table gives one model: in every engine and unit, with another BLAS kernel, in another order.

The gate runs 20 tables, and each engine with one change of each; ``make test-invariance``
runs 300 tables with every engine and every change.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from loops import case

from .engines import ENGINES, from_memory, new_model
from .random_tables import ROUNDING_CHANGES, SYMMETRIES, Table, random_table

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*rows repeat others"),
    pytest.mark.filterwarnings("ignore:y is constant"),
]
TABLES_OF_THE_GATE = 20
TABLES = 300
BATCH = 5  # tables of one test
ROUNDING_TOL = 1e-6  # of the spread of y
EXCHANGE_TOL = 0.02  # of the spread of y, for columns that are images of each other
MANY_ROWS = 1200  # of which the adaptive model uses moments
KINDS_OF_MANY_ROWS = 4  # tables with many rows
CHANGES = ROUNDING_CHANGES | SYMMETRIES
ROOT = Path(__file__).parents[2]

OTHER_KERNELS = """
import sys
import warnings
import numpy as np
from tests.invariance.engines import from_memory
from tests.invariance.random_tables import random_table
warnings.simplefilter("ignore")
first, last, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
np.save(path, np.stack([from_memory(random_table(number), None) for number in range(first, last)]))
"""


@pytest.fixture(autouse=True)
def dispatch_to_other_libraries(monkeypatch):
    """scikit-learn asks for this variable before it follows arrays of torch."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")


def distance(table, reference, change, engine, folder):
    """Largest change of a prediction, in units of the spread of y."""
    changed_table = change[0](table)
    factor = change[1]
    predictions = engine(changed_table, folder) / factor
    return float(np.abs(predictions - reference).max()) / table.target_spread


def engines_here():
    for name, (engine, libraries) in ENGINES.items():
        if all(_is_installed(library) for library in libraries):
            yield name, engine


def _is_installed(library):
    try:
        __import__(library)
    except ImportError:
        return False
    return True


def check_cells(first, last, folder, cells, *, n_rows=None):
    """Every (table, engine, change) of a function `cells(number)` predicts as the table itself."""
    too_far = []
    for number in range(first, last):
        table = random_table(number, n_rows)
        reference = from_memory(table, folder)
        for engine_name, engine, change_name in cells(number):
            moved = distance(table, reference, CHANGES[change_name], engine, folder)
            if not moved <= ROUNDING_TOL:
                too_far.append((number, table.kind, table.X.shape, engine_name, change_name, moved))
    assert not too_far


def check_other_kernels(first, last, folder):
    """Another process with the oldest kernels of OpenBLAS and of ours predicts the same."""
    path = folder / "predictions.npy"
    environment = os.environ | {"OPENBLAS_CORETYPE": "Nehalem", "OLSEN_INSTRUCTION_SET": "plain"}
    command = [sys.executable, "-c", OTHER_KERNELS, str(first), str(last), str(path)]
    subprocess.run(command, check=True, env=environment, cwd=ROOT)
    for number, predictions in zip(range(first, last), np.load(path), strict=True):
        table = random_table(number)
        moved = np.abs(predictions - from_memory(table, folder)).max() / table.target_spread
        assert moved <= ROUNDING_TOL, (number, table.kind, moved)


@pytest.mark.parametrize("first", range(0, TABLES_OF_THE_GATE, BATCH))
def test_changes_that_are_rounding_or_symmetries(first, tmp_path):
    check_cells(
        first,
        first + BATCH,
        tmp_path,
        lambda _: [("memory", from_memory, name) for name in [*CHANGES][1:]],
    )


def test_many_rows_in_every_engine(tmp_path):
    changes = ["other units", *SYMMETRIES]

    def cells(number):
        yield from (("memory", from_memory, name) for name in changes)
        for position, (name, engine) in enumerate(engines_here()):
            yield name, engine, changes[(number + position) % len(changes)]

    check_cells(0, KINDS_OF_MANY_ROWS, tmp_path, cells, n_rows=MANY_ROWS)


@pytest.mark.parametrize(("n_rows", "n_levels"), [(400, 60), (1500, 300)])
def test_levels_that_tie(n_rows, n_levels, tmp_path):
    """Many levels of a factor have as many rows and the same sum of a rounded target: another order
    of rows moved predictions by .1 of the spread of y. Two levels whose rows have the same targets
    are exchangeable: folds distinguish them by their position alone, so that a new order of the
    columns exchanges their predictions.
    """
    rng = np.random.default_rng(0)
    level = rng.integers(0, n_levels, n_rows)
    y = np.round((rng.standard_normal(n_levels)[level] + 2 * rng.standard_normal(n_rows)) / 2)
    X = np.eye(n_levels)[level]
    table = Table("tied levels", X, y, X[:200])
    reference = from_memory(table, tmp_path)
    for name, tolerance in (("row order", ROUNDING_TOL), ("column order", EXCHANGE_TOL)):
        moved = distance(table, reference, SYMMETRIES[name], from_memory, tmp_path)
        with case(name):
            assert moved <= tolerance


@pytest.mark.parametrize("first", range(0, TABLES_OF_THE_GATE, BATCH))
def test_every_engine(first, tmp_path):
    changes = list(ROUNDING_CHANGES)

    def cells(number):
        for position, (name, engine) in enumerate(engines_here()):
            yield name, engine, changes[(number + position) % len(changes)]

    check_cells(first, first + BATCH, tmp_path, cells)


def test_intervals_and_standard_errors_of_few_rows_are_those_of_memory(tmp_path):
    """Few rows are loaded from any source: intervals and standard errors are the same, too."""
    table = random_table(3)
    expected = new_model().fit(table.X, table.y)
    np.save(tmp_path / "X.npy", table.X)
    np.save(tmp_path / "y.npy", table.y)
    models = [
        new_model().fit(tmp_path / "X.npy", tmp_path / "y.npy"),
        new_model().fit(iter([(table.X[:50], table.y[:50]), (table.X[50:], table.y[50:])]), None),
    ]
    if _is_installed("dask"):
        import dask.array as da

        models.append(
            new_model().fit(
                da.from_array(table.X, chunks=(40, -1)), da.from_array(table.y, chunks=40)
            )
        )
    for model in models:
        assert_allclose(
            model.predict_interval(table.new), expected.predict_interval(table.new), rtol=1e-9
        )
        assert_allclose(model.coef_std(), expected.coef_std(), rtol=1e-6, atol=1e-9)
        assert_allclose(model.cv_prediction_, expected.cv_prediction_, rtol=1e-9)


def test_another_blas_kernel(tmp_path):
    check_other_kernels(0, TABLES_OF_THE_GATE, tmp_path)


@pytest.mark.invariance
@pytest.mark.parametrize("first", range(0, TABLES, BATCH))
def test_every_engine_with_every_change(first, tmp_path):
    def cells(_):
        for name, engine in engines_here():
            yield from ((name, engine, change) for change in [*ROUNDING_CHANGES, *SYMMETRIES])

    check_cells(first, first + BATCH, tmp_path, cells)


@pytest.mark.invariance
@pytest.mark.parametrize("first", range(0, TABLES, 50))
def test_another_blas_kernel_for_all_tables(first, tmp_path):
    check_other_kernels(first, first + 50, tmp_path)
