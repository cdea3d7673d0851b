"""The result of a fit, and its conversion to the plain data that pickles and model files store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.fits import ChangedRows, FoldFit, NeedsRows
from .._data.moment_data import MomentData
from .._data.rows import RowData
from .._data.splits import Splits
from .._data.stream import StreamData
from .._data.training import TrainingData
from .._data.triangle import Triangle
from .._execution.memory import describe
from .._execution.threads import blas_threads
from .._members import Members
from .._tuning.risk_curves import RiskCurve
from ..subsets import Design, Determinantal

Array = NDArray[np.float64]

NOT_KEPT = (
    "the model came from a pickle or a file that was written without them. Call fit once more"
)
MAX_STORED_BYTES = 2.0**26  # of training rows in a pickle or a file: 64 MiB
COEFFICIENT_TOLERANCE = 1e-5  # relative to the largest coefficient; solvers agree to more digits
MAX_HASHED_ENTRIES = 1 << 16  # entries up to which the fingerprint hashes all of X
N_SAMPLED_ENTRIES = 1 << 14  # entries that it hashes of a larger X
HASH_FACTORS = np.random.default_rng(1).integers(0, 2**64, 4096, dtype=np.uint64) | np.uint64(1)


@dataclass(frozen=True)
class FittedResult:
    """Everything known after a fit; the fitted attributes are derived from it."""

    designs: Sequence[Design]  # sampling designs of the members: one, or one for each target
    members: Members
    scale: Any
    advantage: float | None = None  # of stacking over equal weights
    curve: RiskCurve | None = None  # of uniform members, from tuning
    fingerprint: Array | None = None  # of the training rows, see :func:`fingerprint`
    why_no_rows: str = ""  # reason why there are no training rows, and what to do
    data: TrainingData | None = None  # the training data, to be read again
    splits: Splits | None = None  # training and test rows of the splits used in tuning
    n_groups: int | None = None  # number of groups that the splits keep together
    folds: list[FoldFit] | None = (
        None  # the chosen mixture of schemes without each of the folds it was chosen in
    )
    computed: dict[str, Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # cache, see `once`

    @property
    def design(self) -> Design:
        """Sampling design of the members, of the first target if each target has separate schemes."""
        return self.designs[0]

    @property
    def rows(self) -> RowData | None:
        """The training rows, if in memory."""
        return None if self.data is None else self.data.host_rows

    def need_rows(self, purpose: str) -> RowData:
        """Return the training rows, or raise an error that says why there are none or that X was
        changed.
        """
        if self.rows is None:
            raise NeedsRows(f"{purpose} needs the training rows: {self.why_no_rows}.")
        rows = replace(self.rows)  # a copy without cached moments, which would hide a change of X
        if not self.same_rows(rows):
            raise ChangedRows(
                f"{purpose} needs the training rows, but X was changed in place. Fit again, or fit"
                " X.copy()."
            )
        return rows

    def same_rows(self, rows: RowData) -> bool:
        """Whether `rows` have the values of the training rows at the time of the fit."""
        expected = self.fingerprint
        if expected is None:
            return False
        current = fingerprint(rows, expected)
        if expected.shape != current.shape or not np.array_equal(expected[:2], current[:2]):
            return False
        return np.allclose(
            expected[2:], current[2:], 1e-8, 1e-8, equal_nan=True
        )  # moments and rows differ by rounding

    def need_data(self, purpose: str) -> TrainingData:
        """Return the training data in their present state, or raise an error that says why the data
        are gone.
        """
        if self.data is None:
            used_up = self.why_no_rows == MomentData.why_no_rows
            alternative = (
                ", or give fit a file or a function that returns the iterator, to be read again"
                * used_up
            )
            raise NeedsRows(f"{purpose} needs the training data: {self.why_no_rows}{alternative}.")
        return self.data if self.rows is None else self.need_rows(purpose)

    def check_unchanged(self, purpose: str, coef: Any, scale: Any = 1.0) -> None:
        """Raise if coefficients (p, q) from a second pass over the data differ from `scale` times
        those of the fit.
        """
        expected = np.asarray(self.members.space.get(self.members.coef), dtype=float) * scale
        tolerance = COEFFICIENT_TOLERANCE * np.abs(expected).max(initial=0.0)
        if self.rows is None and np.any(np.abs(coef - expected) > tolerance):
            raise NeedsRows(
                f"{purpose} reads the training data again, which gave other coefficients than in"
                " the fit: the data were changed since, or columns are nearly dependent. Fit"
                " again, or load X as an array in memory."
            )

    def plain(self, keep_rows: bool) -> Any:
        """Numbers, strings and arrays for a pickle or a model file, which name no module of this
        package.

        With `keep_rows` training rows of up to MAX_STORED_BYTES are included, for intervals and
        standard errors.
        """
        stored = replace(
            self,
            members=self.members.on_host(),
            data=self.data if self.data is not None and self.data.is_stored else None,
            splits=(
                self.splits if self.folds is None else None
            ),  # with folds nothing is refitted on the splits
            why_no_rows=self.why_no_rows or NOT_KEPT,
        )
        n_bytes = 0
        if self.rows is not None:  # a stream has no rows
            n_bytes = _n_bytes([to_plain(stored.data), to_plain(stored.splits)])
        if n_bytes > MAX_STORED_BYTES * keep_rows:
            reason = NOT_KEPT
            if keep_rows:
                limit = (
                    f"training rows of at most {describe(MAX_STORED_BYTES)}, and these take"
                    f" {describe(n_bytes)}"
                )
                reason = f"pickles and files keep {limit}. Call fit once more where they are needed"
            stored = replace(stored, data=None, splits=None, why_no_rows=reason)
        return to_plain(stored)


def fingerprint(problem: RowData, expected: Array | None = None) -> Array:
    """Fingerprint of the current values of the training rows: X is not copied, and users can change
    it in place.

    It begins with a checksum, as two numbers, of the bits of the targets, of the weights and of X.
    A checksum of all of a large X would take a tenth of a fit. For a large X it therefore covers a
    sample of the entries, and linear combinations of all columns follow, each column divided by its
    size. The sizes are taken from the `expected` fingerprint if there is one, because they must not
    follow the data when two fingerprints are compared.
    """
    X = problem.X
    arrays = [X.data, X.indices, X.indptr] if sp.issparse(X) else [X]
    is_small = sum(array.size for array in arrays) <= MAX_HASHED_ENTRIES
    if not is_small:
        arrays = [array[:: max(1, array.size // N_SAMPLED_ENTRIES)] for array in arrays]
    weights = [] if problem.weight is None else [problem.weight]
    shape = np.array([*problem.shape, problem.Y.shape[1], problem.null_rank], dtype=np.int64)
    checksum = _checksum([shape, problem.Y, *weights, *arrays])
    halves = np.array(
        [checksum >> 32, checksum & 0xFFFFFFFF], dtype=np.float64
    )  # 32 bits are exact in a double
    return halves if is_small else np.concatenate([halves, _combinations(problem, expected)])


def _checksum(arrays: Sequence[NDArray[Any]]) -> int:
    """Sum of the bits of all entries times odd numbers that depend on the position, modulo 2^64.

    A change of a single entry always changes the sum. The upper half of every entry is folded into
    the lower half first: sign and exponent are the highest bits, which a product modulo 2^64 would
    almost lose.
    """
    hashes = []
    for array in arrays:
        flat = np.ascontiguousarray(array).reshape(-1)
        bits = flat.view(f"u{flat.itemsize}").astype(np.uint64, copy=False)
        bits = bits ^ (bits >> np.uint64(32))
        while len(bits) > len(HASH_FACTORS):
            n_in_blocks = len(bits) - len(bits) % len(HASH_FACTORS)
            blocks = bits[:n_in_blocks].reshape(-1, len(HASH_FACTORS))
            bits = np.append(np.einsum("ij,j->i", blocks, HASH_FACTORS), bits[n_in_blocks:])
            bits = bits ^ (bits >> np.uint64(32))
        hashes.append(bits @ HASH_FACTORS[: len(bits)])
    return int(np.array(hashes) @ HASH_FACTORS[: len(hashes)])


@blas_threads(1)
@np.errstate(all="ignore")
def _combinations(problem: RowData, expected: Array | None) -> Array:
    """Sizes of the columns, and statistics of one linear combination x of the columns divided by
    their sizes.

    The statistics are the spread and the mean of x, the spreads of the targets, their correlations
    with x, and the slopes of the targets over the row index, which notice rows that were permuted.
    They are computed from the moments if the fit has made some: another pass over X would take a
    twentieth of the fit.
    """
    Y = problem.Y
    total = problem.total_weight
    p = problem.shape[1]
    has_sizes = expected is not None and len(expected) == 2 + p + 2 + 3 * Y.shape[1]
    size = expected[2 : 2 + p] if has_sizes and expected is not None else _column_sizes(problem)
    loadings = np.cos(np.arange(p)) / size
    if problem.has_moments:
        moments = problem.moments
        mean = loadings @ moments.mean_x
        mean_y = moments.mean_y
        xx = loadings @ moments.G @ loadings
        xy = loadings @ moments.C
        yy = moments.yy
    else:
        weight = problem.weights
        x = np.asarray(problem.X @ loadings)
        mean = problem.null_rank / total * (weight @ x)
        mean_y = problem.null_rank / total * (weight @ Y)
        x = x - mean
        y = Y - mean_y
        xx = weight @ x**2
        xy = (weight * x) @ y
        yy = weight @ y**2
    # a deviation within the rounding of the mean is not compared relative to itself
    spread = np.sqrt(xx + total * (1e-6 * mean) ** 2)
    spread_y = np.sqrt(yy + total * (1e-6 * mean_y) ** 2)
    slope = np.arange(float(len(Y))) @ Y / (len(Y) * spread_y)
    return np.concatenate(
        [size, [spread, mean / spread], spread_y, xy / (spread * spread_y), slope]
    )


def _column_sizes(problem: RowData) -> Array:
    """Root mean squares of the columns; 1 for a column of zeros."""
    X = problem.X
    if problem.has_moments:
        squares = (
            np.diagonal(problem.moments.G) / problem.moments.weight + problem.moments.mean_x**2
        )
    elif sp.issparse(X):
        squares = np.asarray(X.astype(np.float64).multiply(X).sum(axis=0)).reshape(-1) / X.shape[0]
    else:
        squares = np.einsum("ij,ij->j", X, X, dtype=np.float64) / len(X)
    return np.where(squares > 0, np.sqrt(squares), 1.0)


def _pairs(rows: NDArray[np.int64], counts: NDArray[np.int64]) -> Splits:
    """Splits from the concatenated row indices of all training and test sets, and the sizes of the
    sets.
    """
    if counts.min(initial=1) < 1 or counts.sum() != len(
        rows
    ):  # empty sets would let a small file make many objects
        raise ValueError("sizes of the splits do not add up to their rows")
    parts = np.split(rows, np.cumsum(counts)[:-1])
    return list(zip(parts[::2], parts[1::2], strict=True))


def _checked_csc(
    arg1: tuple[Array, NDArray[Any], NDArray[Any]], shape: tuple[int, int]
) -> sp.csc_array:
    """A sparse matrix from its three arrays; SciPy would read out of bounds if indices exceed the
    shape.
    """
    data, indices, indptr = arg1
    if not all(isinstance(part, np.ndarray) and part.ndim == 1 for part in (data, indices, indptr)):
        raise TypeError(
            "a sparse matrix is not made of three arrays"
        )  # SciPy takes two integers for a shape
    if (
        len(indptr) != shape[1] + 1
        or data.dtype.kind != "f"
        or indices.dtype.kind != "i"
        or indptr.dtype.kind != "i"
    ):
        raise ValueError("arrays of a sparse matrix are not those of its columns")
    matrix = sp.csc_array((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


KINDS: dict[str, Any] = {
    "csc_array": _checked_csc,
    **{
        kind.__name__: kind
        for kind in (
            *(
                Design,
                Determinantal,
                FittedResult,
                FoldFit,
                Members,
                RowData,
                RiskCurve,
            ),
            *(StreamData, Triangle, _pairs),
        )
    },
}


def to_plain(value: Any) -> Any:
    """Convert a value to numbers, strings, arrays, lists and dicts; a class in KINDS to a dict of
    name and fields.
    """
    if sp.issparse(value):
        return {
            "class": "csc_array",
            "arg1": (value.data, value.indices, value.indptr),
            "shape": value.shape,
        }
    if (
        type(value) is list and value and type(value[0]) is tuple
    ):  # splits become two arrays, whatever their number
        index_sets = [np.asarray(rows) for pair in value for rows in pair]
        counts = np.array([len(rows) for rows in index_sets])
        return {"class": "_pairs", "rows": np.concatenate(index_sets), "counts": counts}
    if type(value) in (list, tuple):
        return type(value)(map(to_plain, value))
    if type(value).__name__ not in KINDS:
        return value
    if isinstance(value, Determinantal):
        value = replace(value, eigenvectors=value.vectors)
    if isinstance(value, FoldFit):
        values = value._asdict()
    else:
        values = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        defaults = {f.name: f.default for f in fields(value)}
        values = {name: part for name, part in values.items() if part is not defaults[name]}
    return {
        "class": type(value).__name__,
        **{name: to_plain(part) for name, part in values.items()},
    }


def restored(plain: Any) -> FittedResult | None:
    """Restore the result of a fit from plain data; raise if the data hold something else, as in a
    damaged file.
    """
    fitted = from_plain(plain)
    if fitted is None:
        return None
    data = fitted.data
    folds = [] if fitted.folds is None else fitted.folds
    parts = [
        (fitted.members, Members),
        (data, RowData | StreamData | None),
        (fitted.curve, RiskCurve | None),
    ]
    parts += [(design, Design) for design in fitted.designs] + [(fold, FoldFit) for fold in folds]
    wrong = [kind for part, kind in parts if not isinstance(part, kind)]
    if wrong or not isinstance(fitted, FittedResult):
        raise TypeError(f"parts of a fit are not {wrong}")
    return fitted


def from_plain(plain: Any) -> Any:
    """Invert `to_plain`."""
    if isinstance(plain, dict):
        return KINDS[plain["class"]](
            **{name: from_plain(part) for name, part in plain.items() if name != "class"}
        )
    return type(plain)(map(from_plain, plain)) if type(plain) in (list, tuple) else plain


def _n_bytes(plain: Any) -> int:
    """Number of bytes of the arrays in plain data."""
    if isinstance(plain, dict):
        plain = list(plain.values())
    if isinstance(plain, (list, tuple)):
        return sum(map(_n_bytes, plain))
    return plain.nbytes if isinstance(plain, np.ndarray) else 0
