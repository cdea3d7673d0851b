"""The result of a fit, and the plain data that pickles and model files keep of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._engines import Blocks, Engine, FoldFit, Memory, NeedsRows, Options, Stream, nobody
from .._execution.memory import describe
from .._members import Members, by_target
from .._members.problem import Problem
from .._moments import DistinctRows, Triangle
from .._selection.risk_curves import RiskCurve, Splits
from .._trust import EPS
from ..subsets import Design, Determinantal

__all__ = ["FittedResult", "from_plain", "restored", "to_plain"]

NOT_KEPT = "the model came from a pickle or a file that was written without them. Call fit once more"
SAME_COEFFICIENTS = 1e-5  # of the largest one: solvers agree to more digits


@dataclass(frozen=True)
class FittedResult:
    """Everything that is known after a fit; the fitted attributes are read off it."""

    designs: Sequence[Design]  # how members are drawn: one, or one for each target
    members: Members
    scale: Any
    advantage: float | None = None  # of stacking over equal weights
    curve: RiskCurve | None = None  # of uniform members, from tuning
    fingerprint: str | None = None  # of the training rows, for a warm start
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
        """The training rows, or an error that says why there are none and what to do."""
        if self.rows is None:
            raise NeedsRows(f"{what} needs the training rows: {self.why_no_rows}.")
        return self.rows

    def need_data(self, what: str) -> Engine:
        """The training data as they are now, without the moments of then, or an error that says why they are gone."""
        if self.data is None:
            again = ""
            if self.why_no_rows == Blocks.why_no_rows:
                again = ", or give fit a function that returns the iterator, or a file, so that it can be read again"
            raise NeedsRows(f"{what} needs the training data: {self.why_no_rows}{again}.")
        return replace(self.data, rows=replace(self.data.problem)) if isinstance(self.data, Memory) else self.data

    def unchanged_rows(self, what: str, again: Sequence[Members] = ()) -> Problem:
        """The training rows, or an error if these are gone or members solved again are not those of the fit."""
        rows, data, members = self.need_rows(what), self.need_data(what), self.members
        again = again or [data.solve(design, 0, members.number, members.weights) for design in self.designs]
        mean = by_target(list(again))
        self.check_unchanged(what, mean.coef, mean.intercept)
        return rows

    def check_unchanged(self, what: str, coef: Any, intercept: Any = None, scale: Any = 1.0) -> None:
        """Raise unless coefficients (p, q) and intercept (q,) that were found again are those of the fit, scaled.

        No copy is made of X, so users can change it in place. What is computed from the rows later gives the members'
        mean coefficients on the way: a check that costs the fit nothing.
        """
        get, rows = self.members.space.get, self.rows
        own, constant = (np.asarray(get(part), dtype=float) for part in (self.members.coef, self.members.intercept))
        own = own * scale
        largest, rounding = float(np.abs(own).max(initial=0.0)), np.zeros((1, 1))
        size = max(float(np.abs(constant).max()), largest if rows is None else float(np.abs(rows.Y).max()))
        if rows is not None:
            reach = np.where(rows.largest_entries > 0, rows.largest_entries, np.inf)[:, None]
            rounding = 1e4 * EPS * (size / reach)  # coefficients so small are rounding of y
        same = np.all(np.abs(coef - own) <= np.maximum(SAME_COEFFICIENTS * largest, rounding))
        if same and (intercept is None or np.all(np.abs(intercept - constant) <= SAME_COEFFICIENTS * size)):
            return
        if rows is not None:
            raise NeedsRows(
                f"{what} is computed from the training rows, but X was changed in place after fit. Fit again, or give "
                f"fit a copy (X.copy()) if you go on changing X."
            )
        raise NeedsRows(
            f"{what} reads the training data again, and they gave other coefficients than in the fit: they were "
            f"changed since, or columns are nearly dependent. A function that returns blocks must return the same ones "
            f"every time. Fit again, or load X as an array in memory."
        )

    def plain(self, most_bytes: float) -> Any:
        """What a pickle or a model file keeps, as numbers, texts and arrays: no module of this package is named.

        Training rows are kept up to so many bytes: intervals and standard errors are computed from them.
        """
        kept = replace(
            self,
            members=self.members.on_host(),
            fingerprint=None,
            random_state=None,
            data=self.data if isinstance(self.data, (Memory, Stream)) else None,
            splits=self.splits if self.folds is None else None,  # only refits of the rows ask for them
            why_no_rows=self.why_no_rows or NOT_KEPT,
        )
        size = 0 if isinstance(self.data, Stream) else _n_bytes([to_plain(kept.data), to_plain(kept.splits)])
        if size > most_bytes:
            why = NOT_KEPT
            if most_bytes > 0:
                why = (
                    f"pickles and files keep training rows of at most {describe(most_bytes)}, and these take "
                    f"{describe(size)}. Call fit once more where it is needed, or set keep_rows=np.inf to keep them "
                    f"whatever their size"
                )
            kept = replace(kept, data=None, splits=None, why_no_rows=why)
        return to_plain(kept)


def _digests(texts: list[str]) -> frozenset[bytes]:
    return frozenset(map(bytes.fromhex, texts))


def _pairs(rows: NDArray[np.int64], counts: NDArray[np.int64]) -> Splits:
    parts = np.split(rows, np.cumsum(counts)[:-1])
    return list(zip(parts[::2], parts[1::2], strict=True))


KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(Design, Determinantal, DistinctRows, FittedResult, FoldFit, Members, Memory, Options, Problem, RiskCurve),
        *(Stream, Triangle, sp.csc_array, _digests, _pairs),
    )
}


def to_plain(value: Any) -> Any:
    """A value as numbers, texts, arrays, lists and dicts; one of KINDS as a dict of its fields and its name."""
    if isinstance(value, frozenset):
        return {"class": "_digests", "texts": sorted(digest.hex() for digest in value)}
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
        value = replace(value, n_threads=1, listen=nobody)  # of the process that fitted
    names = value._fields if isinstance(value, FoldFit) else [part.name for part in fields(value) if part.init]
    defaults = {} if isinstance(value, FoldFit) else {part.name: part.default for part in fields(value)}
    found = {name: getattr(value, name) for name in names}
    kept = {name: to_plain(part) for name, part in found.items() if part is not defaults.get(name, value)}
    return {"class": type(value).__name__, **kept}


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
