"""The result of a fit, and the plain data that pickles and model files keep of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._engines.blocks import Blocks
from .._engines.engine import ChangedRows, Engine, FoldFit, NeedsRows, Options
from .._engines.memory import Memory, Stream
from .._execution.memory import describe
from .._execution.threads import blas_threads
from .._members import Members
from .._members.problem import Problem
from .._moments.triangle import Triangle
from .._tuning.risk_curves import RiskCurve, Splits
from ..subsets import Design, Determinantal

Array = NDArray[np.float64]

NOT_KEPT = "the model came from a pickle or a file that was written without them. Call fit once more"
MOST_BYTES = 2.0**26  # of training rows in a pickle or a file
SAME_COEFFICIENTS = 1e-5  # of the largest one: solvers agree to more digits
HASHED_WHOLE = 1 << 16  # entries of X up to which all of its bits are in the fingerprint
HASHED_SAMPLE = 1 << 14  # entries of a larger X whose bits are in it
FACTORS = np.random.default_rng(1).integers(0, 2**64, 4096, dtype=np.uint64) | np.uint64(1)


@dataclass(frozen=True)
class FittedResult:
    """Everything that is known after a fit; the fitted attributes are read off it."""

    designs: Sequence[Design]  # how members are drawn: one, or one for each target
    members: Members
    scale: Any
    advantage: float | None = None  # of stacking over equal weights
    curve: RiskCurve | None = None  # of uniform members, from tuning
    fingerprint: Array | None = None  # of the training rows, see there
    why_no_rows: str = ""  # why there are none, and what to do
    data: Engine | None = None  # the training data, to be read again
    splits: Splits | None = None  # rows to train and to test on, where tuning had such
    n_groups: int | None = None  # that these keep together
    folds: list[FoldFit] | None = None  # the chosen mixture of schemes without each of the folds it was chosen in
    computed: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # for uncertainty

    @property
    def design(self) -> Design:
        """How members are drawn, of the first target where each has its own schemes."""
        return self.designs[0]

    @property
    def rows(self) -> Problem | None:
        """The training rows, where they are in memory."""
        return None if self.data is None else self.data.problem

    def need_rows(self, what: str) -> Problem:
        """The training rows, or an error that says why there are none, or that they are not those of the fit."""
        if self.rows is None:
            raise NeedsRows(f"{what} needs the training rows: {self.why_no_rows}.")
        rows = replace(self.rows)  # without the moments of then
        if not self.same_rows(rows):
            raise ChangedRows(
                f"{what} needs the training rows, but X was changed in place. Fit again, or fit X.copy()."
            )
        return rows

    def same_rows(self, rows: Problem) -> bool:
        """Whether rows are those of the fit."""
        before = self.fingerprint
        if before is None:
            return False
        now = fingerprint(rows, before)
        if before.shape != now.shape or not np.array_equal(before[:2], now[:2]):
            return False
        return np.allclose(before[2:], now[2:], 1e-8, 1e-8, equal_nan=True)  # moments and rows differ by rounding

    def need_data(self, what: str) -> Engine:
        """The training data as they are now, or an error that says why they are gone."""
        if self.data is None:
            used_up = self.why_no_rows == Blocks.why_no_rows
            again = ", or give fit a file or a function that returns the iterator, to be read again" * used_up
            raise NeedsRows(f"{what} needs the training data: {self.why_no_rows}{again}.")
        return replace(self.data, rows=self.need_rows(what)) if isinstance(self.data, Memory) else self.data

    def check_unchanged(self, what: str, coef: Any, scale: Any = 1.0) -> None:
        """Raise unless coefficients (p, q) found from data that were read again are those of the fit, scaled."""
        own = np.asarray(self.members.space.get(self.members.coef), dtype=float) * scale
        if self.rows is None and np.any(np.abs(coef - own) > SAME_COEFFICIENTS * np.abs(own).max(initial=0.0)):
            raise NeedsRows(
                f"{what} reads the training data again, and they gave other coefficients than in the fit: they were "
                f"changed since, or columns are nearly dependent. Fit again, or load X as an array in memory."
            )

    def plain(self, keep_rows: bool) -> Any:
        """What a pickle or a model file keeps, as numbers, texts and arrays: no module of this package is named.

        Training rows are kept up to MOST_BYTES if wanted: intervals and standard errors are computed from them.
        """
        kept = replace(
            self,
            members=self.members.on_host(),
            data=self.data if isinstance(self.data, (Memory, Stream)) else None,
            splits=self.splits if self.folds is None else None,  # only refits of the rows ask for them
            why_no_rows=self.why_no_rows or NOT_KEPT,
        )
        size = 0 if isinstance(self.data, Stream) else _n_bytes([to_plain(kept.data), to_plain(kept.splits)])
        if size > MOST_BYTES * keep_rows:
            limit = f"training rows of at most {describe(MOST_BYTES)}, and these take {describe(size)}"
            why = f"pickles and files keep {limit}. Call fit once more where they are needed" if keep_rows else NOT_KEPT
            kept = replace(kept, data=None, splits=None, why_no_rows=why)
        return to_plain(kept)


def fingerprint(problem: Problem, before: Array | None = None) -> Array:
    """Of the rows as they are now: no copy is made of X, and users can change it in place.

    It begins with a checksum, as two numbers, of the bits of the targets, of the weights and of X. A checksum of all of
    a large X would take a tenth of a fit, so that of a large X some rows are in it, and combinations of all columns
    follow, each column in units of its own size. An earlier fingerprint gives these sizes again, as they must not
    follow the data when two fingerprints are compared.
    """
    X = problem.X
    parts = [X.data, X.indices, X.indptr] if sp.issparse(X) else [X]
    whole = sum(part.size for part in parts) <= HASHED_WHOLE
    if not whole:
        parts = [part[:: max(1, part.size // HASHED_SAMPLE)] for part in parts]
    weights = [] if problem.weight is None else [problem.weight]
    shape = np.array([*problem.shape, problem.Y.shape[1], problem.fit_intercept], dtype=np.int64)
    checksum = _checksum([shape, problem.Y, *weights, *parts])
    halves = np.array([checksum >> 32, checksum & 0xFFFFFFFF], dtype=np.float64)  # which doubles hold exactly
    return halves if whole else np.concatenate([halves, _combinations(problem, before)])


def _checksum(arrays: Sequence[NDArray[Any]]) -> int:
    """Sum of the bits of all entries times odd numbers that depend on the position, modulo 2^64.

    No change of a single entry leaves it as it is. The upper half of every entry is folded into the lower one first:
    signs and exponents are the highest bits, of which a product modulo 2^64 keeps hardly anything.
    """
    hashes = []
    for array in arrays:
        flat = np.ascontiguousarray(array).reshape(-1)
        bits = flat.view(f"u{flat.itemsize}").astype(np.uint64, copy=False)
        bits = bits ^ (bits >> np.uint64(32))
        while len(bits) > len(FACTORS):
            rest = len(bits) % len(FACTORS)
            blocks = bits[: len(bits) - rest].reshape(-1, len(FACTORS))
            bits = np.append(np.einsum("ij,j->i", blocks, FACTORS), bits[len(bits) - rest :])
            bits = bits ^ (bits >> np.uint64(32))
        hashes.append(bits @ FACTORS[: len(bits)])
    return int(np.array(hashes) @ FACTORS[: len(hashes)])


@blas_threads(1)
@np.errstate(all="ignore")
def _combinations(problem: Problem, before: Array | None) -> Array:
    """Sizes of the columns, spread and mean of a combination of these, its correlation with the targets, their order.

    From moments where a fit has made them: another pass over X would take as long as a twentieth of the fit.
    """
    p, Y, total = problem.shape[1], problem.Y, problem.total_weight
    known = before is not None and len(before) == 2 + p + 2 + 3 * Y.shape[1]
    size = before[2 : 2 + p] if known and before is not None else _column_sizes(problem)
    across = np.cos(np.arange(p)) / size
    if problem.has_moments:
        moments = problem.moments
        mean, mean_y, yy = across @ moments.mean_x, moments.mean_y, moments.yy
        square, C = across @ moments.G @ across, across @ moments.C
    else:
        x, weight = np.asarray(problem.X @ across), problem.weights
        mean, mean_y = (problem.fit_intercept / total * (weight @ part) for part in (x, Y))
        x, y = x - mean, Y - mean_y
        square, C, yy = weight @ x**2, (weight * x) @ y, weight @ y**2
    # what is beside the means no more than their rounding has no size of its own
    spread, width = np.sqrt(square + total * (1e-6 * mean) ** 2), np.sqrt(yy + total * (1e-6 * mean_y) ** 2)
    order = np.arange(float(len(Y))) @ Y / (len(Y) * width)
    return np.concatenate([size, [spread, mean / spread], width, C / (spread * width), order])


def _column_sizes(problem: Problem) -> Array:
    """Root mean squares of the columns, one for a column of zeros."""
    X = problem.X
    if problem.has_moments:
        squares = np.diagonal(problem.moments.G) / problem.moments.weight + problem.moments.mean_x**2
    elif sp.issparse(X):
        squares = np.asarray(X.astype(np.float64).multiply(X).sum(axis=0)).reshape(-1) / X.shape[0]
    else:
        squares = np.einsum("ij,ij->j", X, X, dtype=np.float64) / len(X)
    return np.where(squares > 0, np.sqrt(squares), 1.0)


def _pairs(rows: NDArray[np.int64], counts: NDArray[np.int64]) -> Splits:
    if counts.min(initial=1) < 1 or counts.sum() != len(rows):  # an empty part is an object for a byte of the file
        raise ValueError("rows of the splits are not counted")
    parts = np.split(rows, np.cumsum(counts)[:-1])
    return list(zip(parts[::2], parts[1::2], strict=True))


def _checked_csc(arg1: tuple[Array, NDArray[Any], NDArray[Any]], shape: tuple[int, int]) -> sp.csc_array:
    """A sparse matrix from its three arrays; SciPy would read beside them where indices lie outside of the shape."""
    data, indices, indptr = arg1
    if not all(isinstance(part, np.ndarray) and part.ndim == 1 for part in (data, indices, indptr)):
        raise TypeError("a sparse matrix is not made of three arrays")  # (rows, columns) would be an empty one
    if len(indptr) != shape[1] + 1 or data.dtype.kind != "f" or indices.dtype.kind != "i" or indptr.dtype.kind != "i":
        raise ValueError("arrays of a sparse matrix are not those of its columns")
    matrix = sp.csc_array((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


KINDS: dict[str, Any] = {
    "csc_array": _checked_csc,
    **{
        kind.__name__: kind
        for kind in (
            *(Design, Determinantal, FittedResult, FoldFit, Members, Memory, Options, Problem, RiskCurve),
            *(Stream, Triangle, _pairs),
        )
    },
}


def to_plain(value: Any) -> Any:
    """A value as numbers, texts, arrays, lists and dicts; one of KINDS as a dict of its fields and its name."""
    if sp.issparse(value):
        return {"class": "csc_array", "arg1": (value.data, value.indices, value.indptr), "shape": value.shape}
    if type(value) is list and value and type(value[0]) is tuple:  # splits: two arrays, however many there are
        parts = [np.asarray(rows) for pair in value for rows in pair]
        return {"class": "_pairs", "rows": np.concatenate(parts), "counts": np.array([len(rows) for rows in parts])}
    if type(value) in (list, tuple):
        return type(value)(map(to_plain, value))
    if type(value).__name__ not in KINDS:
        return value
    if isinstance(value, Determinantal):
        value = replace(value, eigenvectors=value.vectors)
    if isinstance(value, Options):
        value = replace(value, n_threads=1, progress=None)  # of the process that fitted
    if isinstance(value, FoldFit):
        kept = value._asdict()
    else:
        own = [(part.name, getattr(value, part.name), part.default) for part in fields(value) if part.init]
        kept = {name: part for name, part, default in own if part is not default}
    return {"class": type(value).__name__, **{name: to_plain(part) for name, part in kept.items()}}


def restored(plain: Any) -> FittedResult | None:
    """The result of a fit from plain data, or an error where these hold something else, as in a damaged file."""
    found = from_plain(plain)
    if found is None:
        return None
    folds = [] if found.folds is None else found.folds
    parts = [(found.members, Members), (found.data, Memory | Stream | None), (found.curve, RiskCurve | None)]
    parts += [(design, Design) for design in found.designs] + [(fold, FoldFit) for fold in folds]
    if isinstance(found.data, Memory):
        parts += [(found.data.rows, Problem), (found.data.options, Options)]
    if isinstance(found.data, Memory | Stream) and found.data.options != replace(found.data.options, n_threads=1):
        raise ValueError("threads are those of the process that fitted")
    wrong = [kind for part, kind in parts if not isinstance(part, kind)]
    if wrong or not isinstance(found, FittedResult):
        raise TypeError(f"parts of a fit are not {wrong}")
    return found


def from_plain(plain: Any) -> Any:
    """The inverse of `to_plain`."""
    if isinstance(plain, dict):
        return KINDS[plain["class"]](**{name: from_plain(part) for name, part in plain.items() if name != "class"})
    return type(plain)(map(from_plain, plain)) if type(plain) in (list, tuple) else plain


def _n_bytes(plain: Any) -> int:
    """Of the arrays in it."""
    if isinstance(plain, dict):
        plain = list(plain.values())
    if isinstance(plain, (list, tuple)):
        return sum(map(_n_bytes, plain))
    return plain.nbytes if isinstance(plain, np.ndarray) else 0
