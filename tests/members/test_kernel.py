"""The compiled kernels: against LAPACK on every instruction set, bad arguments, and their
tolerances.
"""

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from olsen import OLSEnsembleRegressor, _trust
from olsen._data.columns import LANES
from olsen._kernel import _native as _kernel

SOURCE = Path(__file__).parents[2] / "src" / "olsen" / "_kernel"

# Members of a Gram matrix, of submatrices and along paths, and the lasso, in one process for each
# instruction set.
ORACLE = """
import numpy as np
import scipy.sparse as sp
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV, member_coefficients
from olsen._kernel import _native as _kernel
from olsen._kernel import wrappers
rng = np.random.default_rng(0)
X = rng.standard_normal((150, 70)) + 3.0
X[:, 5] = X[:, 6] - X[:, 7]
y = X @ rng.standard_normal((70, 2)) + rng.standard_normal((150, 2))
for m in (1, 4, 7, 8, 9, 16, 23, 33, 64):
    columns = [np.sort(rng.permutation(70)[:m]) for _ in range(5)]
    for rows in (None, [np.sort(rng.permutation(150)[:120]) for _ in range(5)]):
        found = member_coefficients(X, y[:, 0], columns, rows, solver="gram")[0]
        expected = member_coefficients(X, y[:, 0], columns, rows, solver="orthogonal")[0]
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
columns = np.where(rng.uniform(size=(40, 150)) < 0.2, rng.standard_normal((40, 150)), 0.0)
weights = rng.uniform(0.5, 2, 150)
means = columns @ weights / weights.sum()
centred = (columns - means[:, None]) * np.sqrt(weights)
targets = y - np.average(y, axis=0, weights=weights)
settings = {
    "squares": np.sum(centred**2, axis=1), "penalties": np.geomspace(20, 1, 6), "max_columns": 40.0, "tol": 1e-18
}
dense = wrappers.lasso_path(
    M=centred, targets=targets * np.sqrt(weights)[:, None], from_rows=True, **settings
)
stored = sp.csc_array(columns.T)
starts = stored.indptr.astype(np.int64)
lists = wrappers.Lists.of(starts, stored.indices.astype(np.int64))
sparse = wrappers.sparse_lasso_path(
    columns=lists, values=stored.data, mean=means, weights=weights, targets=targets, **settings
)
np.testing.assert_allclose(sparse, dense, rtol=0, atol=1e-9)
for wrong in ({"values": stored.data[1:]}, {"columns": lists._replace(stops=lists.stops + 1)}):
    arguments = {"columns": lists, "values": stored.data, **wrong}
    try:
        wrappers.sparse_lasso_path(
            mean=means, weights=weights, targets=targets, **settings, **arguments
        )
    except ValueError:
        continue
    raise AssertionError(wrong)
score = 0.0
for make in (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor):
    score += float(make(n_estimators=20, random_state=0).fit(X, y).best_score_)
print(_kernel.INSTRUCTION_SET, repr(score))
"""


def test_every_instruction_set_agrees_with_lapack_and_an_unknown_one_is_refused():
    exec(ORACLE, namespace := {})
    scores = {_kernel.INSTRUCTION_SET: namespace["score"]}
    for name in {"avx512", "avx2", "plain", "abacus"} - {*scores}:
        environment = {**os.environ, "OLSEN_INSTRUCTION_SET": name}
        done = subprocess.run(
            [sys.executable, "-c", ORACLE], capture_output=True, text=True, env=environment
        )
        if f"OLSEN_INSTRUCTION_SET={name}" in done.stderr:  # the machine lacks it
            continue
        assert done.returncode == 0, f"{name}: {done.stderr}"
        used, score = done.stdout.split()
        assert used == name
        scores[name] = float(score)
    assert "plain" in scores and "abacus" not in scores
    np.testing.assert_allclose(list(scores.values()), scores["plain"], rtol=1e-9)


def test_tolerances_are_those_of_the_python_code():
    text = (SOURCE / "kernels.h").read_text()
    definitions = re.findall(r"#define (\w+) (0x1p-52|[\d.]+e-?\d+)\n", text)
    tolerances = {
        name: float.fromhex(value) if "x" in value else float(value) for name, value in definitions
    }
    assert tolerances.pop("RANK_COST") * 7 == pytest.approx(1e-20 * 7)
    assert _trust.costs_a_rank(6.9e-20, 7) and not _trust.costs_a_rank(7.1e-20, 7)
    assert 0 < tolerances.pop("DEPENDENT_PIVOT") < _trust.SMALLEST_PIVOT
    assert _trust.LARGEST_INFLATION < tolerances.pop("LARGEST_REFINABLE") < 1e-5 / _trust.EPS
    assert (
        tolerances == {name: getattr(_trust, name) for name in tolerances} and len(tolerances) == 4
    )
    assert f"#define LANES {LANES}\n" in (SOURCE / "simd.h").read_text()


def principal(seed=0):
    """Arguments of a call that works, by name."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((9, 40))
    indptr = np.array([0, 3, 3, 9])
    return {
        "begin": 0,
        "end": 3,
        "G": A @ A.T,
        "C": rng.standard_normal((9, 3)),
        "scale": np.ones(9),
        "A": A,
        "Y": rng.standard_normal((40, 1)),
        "far": np.zeros(9),
        "relative": 1e-15,
        "starts": indptr[:-1],
        "stops": indptr[1:],
        "indices": np.array([0, 4, 8, 1, 2, 3, 5, 6, 7]),
        "shifts": np.zeros(3),
        "values": np.empty((9, 1)),
        "ratios": np.empty(3),
        "probed": np.empty(3),
    }


def test_every_member_has_its_shift_of_the_diagonal():
    arguments = principal()
    arguments["shifts"] = np.array([0.0, 1.0, 2.5])
    _kernel.solve_principal(*arguments.values())
    G = arguments["G"]
    for start, stop, shift in zip(
        arguments["starts"], arguments["stops"], arguments["shifts"], strict=True
    ):
        S = arguments["indices"][start:stop]
        expected = np.linalg.solve(G[np.ix_(S, S)] + shift * np.eye(len(S)), arguments["C"][S, :1])
        np.testing.assert_allclose(arguments["values"][start:stop], expected, rtol=1e-12)


BAD = {
    "a column that is not there": {"indices": np.array([0, 4, 9, 1, 2, 3, 5, 6, 7])},
    "a negative column": {"indices": np.array([0, 4, -1, 1, 2, 3, 5, 6, 7])},
    "a list beyond its indices": {"stops": np.array([3, 3, 10])},
    "a list that ends before it begins": {"stops": np.array([3, 2, 9])},
    "a range beyond the members": {"end": 4},
    "a range before them": {"begin": -1},
    "a range that is no number": {"end": float("nan")},
    "other shapes": {"scale": np.ones(8)},
    "single precision": {"G": np.eye(9, dtype=np.float32)},
    "narrow integers": {"indices": np.arange(9, dtype=np.int32)},
    "another order": {"G": np.asfortranarray(np.arange(81.0).reshape(9, 9))},
    "another dimension": {"scale": np.ones((9, 1))},
    "too little room for results": {"values": np.empty((8, 1))},
    "more targets than right-hand sides": {"values": np.empty((9, 4))},
    "targets of other rows": {"Y": np.zeros((39, 1))},
    "no array": {"G": None},
    "no number": {"relative": "small"},
}


def test_bad_arguments_are_refused_and_nothing_is_written():
    arguments = principal()
    assert _kernel.solve_principal(*arguments.values()) == 0
    for case, changes in BAD.items():
        bad_arguments = {**principal(), **changes}
        for name in ("values", "ratios", "probed"):
            bad_arguments[name].fill(7.0)
        with pytest.raises((ValueError, TypeError, BufferError)):
            _kernel.solve_principal(*bad_arguments.values())
            pytest.fail(case)
        assert all(np.all(bad_arguments[name] == 7.0) for name in ("values", "ratios", "probed")), (
            case
        )
    for wrong_number in ((), list(arguments.values())[:-1], [*arguments.values(), 1]):
        with pytest.raises(TypeError):
            _kernel.solve_principal(*wrong_number)
    arguments["values"].flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        _kernel.solve_principal(*arguments.values())


def test_arrays_that_are_not_aligned_too_long_or_no_eigenvectors_are_refused():
    """Vectors of zeros or NaN, from which drawing would never end, count as no eigenvectors."""
    arguments = principal()
    none = np.zeros(1, np.int64)
    arguments["scale"] = np.frombuffer(bytearray(73), np.uint8)[1:73].view(np.float64)
    with pytest.raises(ValueError, match="scale"):
        _kernel.solve_principal(*arguments.values())
    too_many_columns = (2**64 + 257) // 258  # its product with a size of a slab wraps around
    empty = (
        np.zeros((0, 0)),
        np.zeros((0, too_many_columns)),
        np.zeros((0, 0)),
        np.zeros((0, too_many_columns)),
        0,
        np.zeros(0),
        np.zeros(0),
    )
    with pytest.raises(ValueError, match="too long"):
        _kernel.factor_members(
            0, 1, *empty, 0.0, none, none + 0, none[:0], np.zeros((1, 8)), np.zeros(1)
        )
    for columns in (2**32, 2**40, -1):
        with pytest.raises(ValueError, match="go together"):
            _kernel.member_size(columns, 1)
    for vectors in (np.zeros((5, 3)), np.full((5, 3), np.nan), np.empty((0, 3)), np.ones((5, 3))):
        with pytest.raises(ValueError, match="go together"):
            _kernel.draw_determinantal(
                0,
                2,
                np.arange(2),
                vectors,
                np.ones(3),
                np.empty((2, 3), np.int64),
                np.empty(2, np.int64),
            )
    X = np.frombuffer(bytearray(8 * 600 + 1), np.uint8)[1:].view(np.float64).reshape(60, 10)
    X[:] = np.random.default_rng(0).standard_normal((60, 10))
    y = np.arange(60.0)
    coef = [
        OLSEnsembleRegressor(30, 4, max_samples=0.5, random_state=0).fit(Z, y).coef_
        for Z in (X, X.copy())
    ]
    np.testing.assert_array_equal(*coef)


def test_stores_and_sums_of_other_sizes_are_refused():
    """A pair without a slot is skipped."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((9, 16))
    Y = rng.standard_normal((16, 1))
    ones = np.ones(9)
    lists = np.array([0, 9, 18])
    columns = (lists[:-1], lists[1:], np.tile(np.arange(9), 2))
    room = _kernel.member_size(9, 1)
    member_arguments = (
        0,
        2,
        np.empty((0, 0)),
        np.zeros((0, 1)),
        A,
        Y,
        16,
        ones,
        0 * ones,
        0.0,
        *columns,
    )
    with pytest.raises(ValueError, match="go together"):
        _kernel.factor_members(*member_arguments, np.empty((2, room - 1)), np.empty(2))
    store = np.empty((2, room))
    _kernel.factor_members(*member_arguments, store, np.empty(2))
    right = {"begin": 0, "end": 2, "rows": 16, "sizes": [4, 9], "slots": [0], "store": store}
    wrong = [
        {"begin": -1},
        {"end": 3},
        {"rows": 17},
        {"sizes": [4, 10]},
        {"slots": [1]},
        {"slots": [0, 0]},
        {"store": np.empty((2, room - 1))},
    ]
    for changed in ({}, {"slots": [-1]}, *wrong):
        begin, end, rows, sizes, slots, factors = (right | changed).values()
        sums = np.zeros((3, 2, 1, 16))
        states = np.zeros(16, np.int64)
        pair_arguments = np.array(sizes), np.array(slots), factors, *sums, states
        with pytest.raises(ValueError, match="go together") if changed in wrong else nullcontext():
            _kernel.sum_pairs(
                begin, end, A, Y, np.zeros(16), np.ones(16), rows, True, *columns, *pair_arguments
            )
        assert np.any(sums) != bool(changed), changed
