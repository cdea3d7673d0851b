"""The result of a fit, and the plain data that pickles and model files keep of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._engines import Blocks, Engine, FoldFit, Memory, NeedsRows, Options, Stream
from .._execution.memory import describe
from .._members import Members
from .._members.problem import Problem
from .._moments import Triangle
from .._selection.risk_curves import RiskCurve, Splits
from ..subsets import Design, Determinantal

Array = NDArray[np.float64]

NOT_KEPT = "the model came from a pickle or a file that was written without them. Call fit once more"
MOST_BYTES = 2.0**26  # of training rows in a pickle or a file
SAME_COEFFICIENTS = 1e-5  # of the largest one: solvers agree to more digits


@dataclass(frozen=True)
class FittedResult:
    """Everything that is known after a fit; the fitted attributes are read off it."""

    designs: Sequence[Design]  # how members are drawn: one, or one for each target
    members: Members
    scale: Any
    advantage: float | None = None  # of stacking over equal weights
    curve: RiskCurve | None = None  # of uniform members, from tuning
    fingerprint: Array | None = None  # of the training rows
    why_no_rows: str = ""  # why there are none, and what to do
    random_state: Any = None  # what the seed came from: the same object means the same members in a warm start
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
        if not same_rows(self.fingerprint, fingerprint(self.rows), np.sqrt(np.finfo(self.rows.X.dtype).eps)):
            raise NeedsRows(f"{what} needs the training rows, but X was changed in place. Fit again, or fit X.copy().")
        return replace(self.rows)  # without the moments of then

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
            random_state=None,
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


def fingerprint(problem: Problem | None) -> Array | None:
    """Products of the rows as they are now, and their size: no copy is made of X, and users can change it in place."""
    if problem is None:
        return None
    n, p = problem.X.shape
    along, weight = np.cos(np.arange(n)), 0.0 if problem.weight is None else problem.weight
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.asarray(problem.X @ np.cos(np.arange(p)).astype(problem.X.dtype), dtype=np.float64)
        return np.array([np.linalg.norm(product), along @ product, np.sum(along * weight), *(along @ problem.Y)])


def same_rows(before: Array | None, now: Array | None, tol: float = 0.0) -> bool:
    """Whether two fingerprints are of the same rows; with a tolerance, if one of them was made on another machine."""
    if before is None or now is None or before.shape != now.shape:
        return False
    return bool(np.allclose(before[1:], now[1:], rtol=tol, atol=tol * np.nan_to_num(now[0]), equal_nan=True))


def _pairs(rows: NDArray[np.int64], counts: NDArray[np.int64]) -> Splits:
    parts = np.split(rows, np.cumsum(counts)[:-1])
    return list(zip(parts[::2], parts[1::2], strict=True))


KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(Design, Determinantal, FittedResult, FoldFit, Members, Memory, Options, Problem, RiskCurve),
        *(Stream, Triangle, sp.csc_array, _pairs),
    )
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
        value = replace(value, eigenvectors=value.vectors, matrix=None)
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
