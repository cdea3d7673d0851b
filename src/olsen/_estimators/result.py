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
from .._execution.threads import cached_property
from .._members import Members
from .._tuning.risk_curves import RiskCurve
from ..subsets import Design, Determinantal, DrawnColumns
from .fingerprints import same_rows
from .leverage import Leverage, leverage_of

Array = NDArray[np.float64]

NOT_KEPT = (
    "the model came from a pickle or a file that was written without them. Call fit once more"
)
MAX_STORED_BYTES = 2.0**26  # of training rows in a pickle or a file: 64 MiB
MAX_STORED_COLUMNS = 1000  # whose products are factorised, in half a second, for a pickle


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
    # the chosen mixture of schemes without each of the folds it was chosen in
    folds: list[FoldFit] | None = None
    leverage: Leverage | None = None  # of a pickle that was written without the rows it needs
    computed: dict[str, Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # cache, see `once`

    @property
    def design(self) -> Design:
        """Sampling design of the members, of the first target if each target has separate schemes."""
        return self.designs[0]

    @cached_property
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
        return self.fingerprint is not None and same_rows(self.fingerprint, rows)

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
        those of the fit by more than 1e-5 of the largest; solvers agree to more digits.
        """
        expected = np.asarray(self.members.space.get(self.members.coef), dtype=float) * scale
        tolerance = 1e-5 * np.abs(expected).max(initial=0.0)
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
        data = self.data if self.data is not None and self.data.is_stored else None
        stored = replace(
            self,
            members=self.members.on_host(),
            data=data,
            splits=(
                self.splits if self.folds is None else None
            ),  # with folds nothing is refitted on the splits
            why_no_rows=self.why_no_rows or NOT_KEPT,
        )
        n_bytes = 0
        if self.rows is not None:  # a stream has no rows
            n_bytes = _n_bytes(to_plain([data, stored.splits]))
        if n_bytes > MAX_STORED_BYTES * keep_rows:
            reason = NOT_KEPT
            if keep_rows:
                limit = (
                    f"training rows of at most {describe(MAX_STORED_BYTES)}, and these take"
                    f" {describe(n_bytes)}"
                )
                reason = f"pickles and files keep {limit}. Call fit once more where they are needed"
            stored = replace(stored, data=None, splits=None, why_no_rows=reason)
        rows_are_secret = not keep_rows
        needs_leverage = stored.data is None and not rows_are_secret
        stored = replace(stored, leverage=self._stored_leverage() if needs_leverage else None)
        return to_plain(stored)

    def _stored_leverage(self) -> Leverage | None:
        """Leverage for a pickle without rows: as computed before, or of rows in memory.

        A pickle that is to hold no rows gets none: a column that is zero but in one row shows that
        row in its products with other columns.
        """
        leverage = self.leverage or self.computed.get("_leverage")
        design = self.design
        few_columns = design.n_columns <= min(design.n_rows, MAX_STORED_COLUMNS)
        if (
            leverage is None
            and few_columns
            and self.data is not None
            and self.data.rows is not None
        ):
            leverage = leverage_of(self.data, self.designs)
        return None if leverage is None else leverage.without_rows


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
    kinds = "".join(part.dtype.kind for part in (data, indices, indptr))
    if kinds != "fii" or len(indptr) != shape[1] + 1:
        raise ValueError("arrays of a sparse matrix are not those of its columns")
    matrix = sp.csc_array((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


KINDS: dict[str, Any] = {
    "csc_array": _checked_csc,
    "_pairs": _pairs,
    "Design": Design,
    "Determinantal": Determinantal,
    "DrawnColumns": DrawnColumns,
    "FittedResult": FittedResult,
    "FoldFit": FoldFit,
    "Leverage": Leverage,
    "Members": Members,
    "RowData": RowData,
    "RiskCurve": RiskCurve,
    "StreamData": StreamData,
    "Triangle": Triangle,
}


def to_plain(value: Any) -> Any:
    """Convert a value to numbers, strings, arrays, lists and dicts; a class in KINDS to a dict of
    name and fields.
    """
    match value:
        case [(_, _), *_] if type(value) is list:  # splits: two arrays, whatever their number
            index_sets = [np.asarray(rows) for pair in value for rows in pair]
            counts = np.array([len(rows) for rows in index_sets])
            return {"class": "_pairs", "rows": np.concatenate(index_sets), "counts": counts}
        case sp.csc_array():
            arrays = (value.data, value.indices, value.indptr)
            return {"class": "csc_array", "arg1": arrays, "shape": value.shape}
        case FoldFit():
            values = value._asdict()
        case list() | tuple():
            return type(value)(map(to_plain, value))
        case Determinantal():
            values = _fields(replace(value, eigenvectors=value.vectors))
        case _ if type(value).__name__ in KINDS:
            values = _fields(value)
        case _:
            return value
    plain = {name: to_plain(part) for name, part in values.items()}
    return {"class": type(value).__name__, **plain}


def _fields(value: Any) -> dict[str, Any]:
    """Arguments of a dataclass that differ from their defaults."""
    arguments = {field.name: field for field in fields(value) if field.init}
    values = {name: getattr(value, name) for name in arguments}
    return {name: part for name, part in values.items() if part is not arguments[name].default}


def restored(plain: Any) -> FittedResult | None:
    """Restore the result of a fit from plain data; raise if the data hold something else, as in a
    damaged file.
    """
    fitted: FittedResult | None = from_plain(plain)
    if fitted is None:
        return None
    data = fitted.data
    parts: list[tuple[Any, Any]] = [
        (fitted, FittedResult),
        (fitted.members, Members),
        (fitted.curve, RiskCurve | None),
        (data, RowData | StreamData | None),
        (fitted.leverage, Leverage | None),
        *((design, Design) for design in fitted.designs),
        *((fold, FoldFit) for fold in fitted.folds or ()),
    ]
    wrong = [kind for part, kind in parts if not isinstance(part, kind)]
    if wrong:
        raise TypeError(f"parts of a fit are not {wrong}")
    return fitted


def from_plain(plain: Any) -> Any:
    """Invert `to_plain`."""
    match plain:
        case dict():
            arguments = {key: from_plain(part) for key, part in plain.items() if key != "class"}
            return KINDS[plain["class"]](**arguments)
        case list() | tuple():
            return type(plain)(map(from_plain, plain))
    return plain


def _n_bytes(plain: Any) -> int:
    """Number of bytes of the arrays in plain data."""
    match plain:
        case dict():
            return sum(map(_n_bytes, plain.values()))
        case list() | tuple():
            return sum(map(_n_bytes, plain))
        case np.ndarray():
            return plain.nbytes
    return 0
