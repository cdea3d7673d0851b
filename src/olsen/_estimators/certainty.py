"""What a fit is asked about its uncertainty: computed from the training data, wherever they are, and kept."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._engines import Engine, Memory, NeedsRows, Stream
from .._engines.left_out import Refit
from .._execution.threads import Sharing
from .._members import Members
from . import uncertainty
from .draws import Draws
from .folded import Folded
from .left_out import LeftOut
from .moment_spread import MomentSpread, mean_inverse

if TYPE_CHECKING:
    from .fitted import FittedResult

__all__ = ["Certainty"]

NO_CHANGES = (
    "method='jackknife+' needs the changes of the coefficients by each training row, which this model's file was "
    "written without. Use method='jackknife', or save the fitted model again with intervals"
)
READ_AGAIN = "give fit a function that returns the iterator, or a file, so that it can be read again"
FOLDS_IN_MEMORY, FOLDS = 10, 5
MOST_ROWS = 200_000  # whose errors make intervals: their quantiles are good to a tenth of a per cent
PILOT = 200  # members that tell how much infinitely many vary one by one
SAME = 1e-5  # of the largest coefficient: solvers agree to more digits


class Certainty:
    """How sure a fit is.

    Parameters
    ----------
    fitted : FittedResult
        The fit.
    """

    def __init__(self, fitted: FittedResult) -> None:
        self.fitted = fitted

    @cached_property
    def deletions(self) -> uncertainty.Deletions:
        """The ensemble without each of its rows; computed when it is first asked for."""
        rows, members = self.fitted.kept_rows("predict_interval"), self.fitted.members
        assert members is not None
        check = partial(rows.check_members, "predict_interval (and return_std)", fitted=members)
        given = rows.problem, self.fitted.design, members.weights
        return uncertainty.Deletions(*given, self.fitted.scale, check, self.known_error)

    @property
    def known_error(self) -> float | None:
        """Mean squared error of left-out rows, where it is more than refits with the same law would tell."""
        found = self.fitted.selection
        return found.mse if found is not None and found.inclusion in ("mixed", "adaptive") else None

    @property
    def default_intervals(self) -> str:
        """The method that ``method="auto"`` stands for."""
        if self.fitted.left_out is not None and self.fitted.rows is None:
            return "jackknife+" if self.fitted.left_out.changes is not None else "jackknife"
        in_memory = self.fitted.rows is not None and self.fitted.n_groups is None
        return "jackknife+" if in_memory and self.deletions.changes_fit else "cv+"

    def interval_source(self, plus: bool) -> uncertainty.Deletions | LeftOut:
        """The training rows, or what a file kept of them."""
        if self.fitted.rows is not None or self.fitted.left_out is None:
            if self.fitted.rows is None:
                again = self.fitted.data is not None and self.fitted.stream is None
                other = "; method='cv+' reads the data again" if again else ""
                what = f"predict_interval(method={'jackknife+' if plus else 'jackknife'!r})"
                raise NeedsRows(f"{what} needs the training rows: {self.fitted.why_no_rows}{other}.")
            return self.deletions
        if plus and self.fitted.left_out.changes is None:
            raise NeedsRows(f"{NO_CHANGES}.")
        return self.fitted.left_out

    @cached_property
    def folded(self) -> Folded:
        """The ensemble without folds of rows."""
        data, members = self._data("predict_interval(method='cv+')")
        if isinstance(data, Stream):
            raise NeedsRows(f"predict_interval needs the training rows: {self.fitted.why_no_rows}.")
        refit = Refit(self.fitted.design, np.asarray(members.weights), self.fitted.scale)
        if isinstance(data, Memory):
            data = self.data_now("predict_interval")
            again = data.solve(self.fitted.design, 0, members.number, members.weights)
            self.fitted.kept_rows("predict_interval").check_members(
                "predict_interval", again.coef, again.intercept, members
            )
            if self.fitted.splits is not None:
                return Folded.of(
                    data.left_out_of(list(self.fitted.splits), refit), self.known_error, self.fitted.n_groups
                )
        count = FOLDS_IN_MEMORY if isinstance(data, Memory) else FOLDS
        whole, fits = data.left_out(refit, count, self.fitted.design.seed, MOST_ROWS)
        n = sum(len(fit.residual) for fit in fits)
        if self.fitted.design.n_rows <= MOST_ROWS and n != self.fitted.design.n_rows:
            raise NeedsRows(
                f"the data gave {self.fitted.design.n_rows} rows when they were fitted and {n} now. Fit again."
            )
        if whole is not None and not _same_coefficients(whole, members):
            raise NeedsRows(
                "the data are read again for intervals, and gave other coefficients than when they were fitted. Fit "
                "again; a function that returns blocks must return the same ones every time."
            )
        return Folded.of(fits, self.known_error)

    def _data(self, what: str) -> tuple[Engine, Members]:
        """The training data and the members, or an error that says why they are not there."""
        if self.fitted.data is None or self.fitted.members is None:
            again = f", or {READ_AGAIN}" if self.fitted.members is not None else ""
            raise NeedsRows(f"{what} needs the training data: {self.fitted.why_no_rows}{again}.")
        return self.fitted.data, self.fitted.members

    @cached_property
    def _moment_spread(self) -> MomentSpread:
        data, members = self._data("a standard error")
        if not self.fitted.design.all_rows:
            raise NeedsRows(
                f"standard errors of members with max_samples={self.fitted.design.max_samples!r} need the training "
                f"rows: {self.fitted.why_no_rows}."
            )
        design, moments = self.fitted.design, data.sums()
        if members.number < np.inf:
            inverse = mean_inverse(moments.G, design.draw(0, len(members))[0], Sharing())
        else:
            assert design.process is not None
            inverse = design.process.mean_inverse()
        found = MomentSpread.of(moments, inverse, self.fitted.scale)
        coef = np.asarray(members.space.get(members.coef), dtype=float)
        if not np.allclose(found.coef, coef, rtol=0, atol=SAME * np.abs(coef).max(initial=0.0)):
            raise NeedsRows(
                "standard errors from moments need the data that were fitted, and columns that are not nearly "
                "dependent; here moments give other coefficients than the fit did. Load X as an array in memory."
            )
        return found

    def coef_std(self, what: str, sharing: Sharing) -> NDArray[np.float64]:
        """Standard error of the expected coefficients, (p, q)."""
        if self.fitted.rows is not None:
            return self.deletions.coef_std(sharing)
        self._data(what)
        return self._moment_spread.coef_std()

    def std(self, what: str, X: Any, sharing: Sharing) -> NDArray[np.float64]:
        """Standard error of the expected prediction, (rows, q)."""
        if self.fitted.rows is not None:
            return self.deletions.std(X, sharing)
        self._data(what)
        return self._moment_spread.std(X)

    def error(self, what: str, sharing: Sharing) -> NDArray[np.float64]:
        """Mean squared error of prediction for each target."""
        if self.fitted.rows is not None:
            return np.asarray(np.mean(self.deletions.left_out(sharing, plus=False).residual ** 2, axis=0))
        if self.fitted.left_out is not None:
            return np.asarray(np.mean(self.fitted.left_out.residual**2, axis=0))
        self._data(what)
        return self.folded.mse

    def draws(self, what: str) -> Draws:
        """Batches of members, solved again; computed when they are first asked for."""
        self._data(what)
        return self._draws

    def data_now(self, what: str) -> Any:
        """The training data as they are now, without the moments of then: users can change X."""
        data, _ = self._data(what)
        return replace(data, problem=replace(data.problem)) if isinstance(data, Memory) else data

    def limit_coef(self) -> NDArray[np.float64]:
        """Coefficients (p, q) of infinitely many determinantal members, scaled."""
        data = self.data_now("limit_coef_")
        limit = data.solve(data.complete(replace(self.fitted.design, process=None)), 0, np.inf)
        return np.asarray(self.fitted.scale * limit.space.get(limit.coef), dtype=float)

    @cached_property
    def _draws(self) -> Draws:
        members = self._data("another draw")[1]
        weights = np.asarray(members.weights) if len(members) else np.full(PILOT, 1 / PILOT)
        if np.ptp(weights) > 0:
            raise ValueError(
                "members of this fit are stacked, and another draw of them would get weights of its own: how much it "
                "would change cannot be told from these. Use mixing='mean'."
            )
        found = Draws.of(self.data_now("another draw"), self.fitted.design, weights, self.fitted.scale)
        if not len(members):
            return found
        coef = self.fitted.scale * np.asarray(members.space.get(members.coef), dtype=float)
        if not np.allclose(found.mean_coef(), coef, rtol=0, atol=SAME * np.abs(coef).max(initial=0.0)):
            raise NeedsRows(
                "members are solved again to see how they vary, and gave other coefficients than in the fit: the "
                "training data were changed since. Fit again, or give fit a copy (X.copy()) if you go on changing X."
            )
        return found


def _same_coefficients(found: Members, fitted: Members) -> bool:
    a, b = (np.asarray(members.space.get(members.coef), dtype=float) for members in (found, fitted))
    m, n = (np.asarray(members.space.get(members.intercept), dtype=float) for members in (found, fitted))
    near = np.allclose(a, b, rtol=0, atol=SAME * np.abs(b).max(initial=0.0))
    return bool(near and np.allclose(m, n, rtol=SAME, atol=SAME * np.abs(b).max(initial=0.0)))
