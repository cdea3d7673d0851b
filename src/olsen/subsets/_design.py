"""The sampling design of an ensemble, from which its members can be drawn again at any time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._compressed import Subsets, Threads
from ._determinantal import Determinantal
from ._drawing import draw_members, is_all, is_count, resolve_size
from ._drawn_columns import DrawnColumns


@dataclass(frozen=True)
class Design:
    """Sampling design of an ensemble: its rows and columns, sampling schemes and seed.

    Parameters
    ----------
    n_rows, n_columns : int
        Rows with positive weight, and columns.
    seed : int
        Member i is a function of (seed, i).
    max_features : int, float or ndarray of shape (n_columns,)
        Columns of a member: a count, a fraction, or the probability of every column.
    max_samples : int or float, default=1.0
        Rows of a member.
    sampling : {"fixed", "bernoulli", "determinantal"}, default="fixed"
        Fixed sizes, coin flips, or subsets drawn by a determinantal process.
    kind : {"balanced", "independent"}, default="balanced"
        What estimators call `design`.
    fit_intercept : bool, default=True
        Whether members lose a row to an intercept (it counts in the rejection rule of coin flips).
    distinct_rows : int or None, default=None
        Number of distinct rows, for that rule, if rows are in memory; None: all rows.
    n_given : int or None, default=None
        Number of rows passed to ``fit``, including rows of weight zero; None: `n_rows`.
    kept_rows : ndarray or None, default=None
        Indices of the rows with positive weight among the rows passed to ``fit``; None: all rows,
        or unknown.
    scheme_weights : ndarray of shape (n_schemes,) or None, default=None
        Fraction of the members drawn by each scheme of a mixture: determinantal schemes, then
        uniform members of size `max_features` if there is one more entry than `penalties`. All
        zeros: no scheme has a weight, and members are drawn uniformly.
    prior_variances : ndarray of shape (n_determinantal, n_columns) or None, default=None
        Prior variances of the columns, for each determinantal scheme.
    penalties : ndarray of shape (n_determinantal,) or None, default=None
        Penalty of each determinantal scheme.
    process : tuple of Determinantal or None, default=None
        Processes that determinantal members are drawn from, computed once: drawing again does not
        need the data.
    uniform_penalty : float, default=0.0
        Penalty of every column of the uniform members of a mixture, as a fraction of the column's
        squared norm.
    drawn_columns : DrawnColumns or None, default=None
        Items that are drawn in the place of columns; None: all columns, in the order of the data.

    Examples
    --------
    >>> from olsen.subsets import Design
    >>> design = Design(n_rows=20, n_columns=10, seed=0, max_features=4)
    >>> features, samples = design.draw(0, 3)
    >>> features.sizes.tolist(), samples is None
    ([4, 4, 4], True)
    """

    n_rows: int
    n_columns: int
    seed: int
    max_features: int | float | NDArray[np.float64]
    max_samples: int | float = 1.0
    sampling: str = "fixed"
    kind: str = "balanced"
    fit_intercept: bool = True
    distinct_rows: int | None = None
    n_given: int | None = None
    kept_rows: NDArray[np.int64] | None = None
    scheme_weights: NDArray[np.float64] | None = None
    prior_variances: NDArray[np.float64] | None = None
    penalties: NDArray[np.float64] | None = None
    uniform_penalty: float = 0.0
    process: tuple[Determinantal, ...] | None = None
    drawn_columns: DrawnColumns | None = None

    @property
    def uniform(self) -> Design:
        """Design of the uniform members of a mixture."""
        return replace(
            self,
            sampling="fixed",
            scheme_weights=None,
            prior_variances=None,
            penalties=None,
            process=None,
        )

    @property
    def uniform_weight(self) -> float:
        """Fraction of uniform members in a mixture."""
        assert self.scheme_weights is not None and self.penalties is not None
        return (
            float(self.scheme_weights[-1])
            if len(self.scheme_weights) > len(self.penalties)
            else 0.0
        )

    @property
    def n_items(self) -> int:
        """Number of items from which columns are drawn."""
        return self.n_columns if self.drawn_columns is None else self.drawn_columns.n_items

    @property
    def all_rows(self) -> bool:
        """Whether members see every row."""
        return is_all(self.max_samples)

    def draw(
        self, start: int, stop: int, threads: Threads | None = None
    ) -> tuple[Subsets, Subsets | None]:
        """Columns of members `start` to `stop`, and their rows; None: all rows."""
        if self.sampling == "determinantal" or self.scheme_weights is not None:
            assert self.process is not None
            return self._draw_schemes(self.process, start, stop, threads), None
        features, samples = draw_members(
            self.n_rows,
            self.n_items,
            stop,
            start=start,
            rng=self.seed,
            max_features=self.max_features,
            max_samples=self.max_samples,
            sampling=self.sampling,
            design=self.kind,
            fit_intercept=self.fit_intercept,
            distinct_rows=self.distinct_rows,
            threads=threads,
        )
        if self.drawn_columns is not None:
            features = self.drawn_columns.of_members(
                features, self.n_columns, start=start, seed=self.seed
            )
        return features, samples

    def _draw_schemes(
        self, process: tuple[Determinantal, ...], start: int, stop: int, threads: Threads | None
    ) -> Subsets:
        """Columns of determinantal members, or of the members of a mixture."""
        if self.scheme_weights is None:
            return process[0].draw(start, stop, rng=self.seed, threads=threads)
        if not self.scheme_weights.any():  # the mean target, whose members have no weight
            return self.uniform.draw(start, stop, threads)[0]
        schemes = schemes_of_members(self.scheme_weights, stop)
        subsets_of_scheme = []
        for i in range(len(self.scheme_weights)):
            first = int(np.sum(schemes[:start] == i))
            last = int(np.sum(schemes[:stop] == i))
            if i < len(process):
                drawn = process[i].draw(first, last, rng=self.seed, threads=threads, scheme=i)
            else:
                drawn, _ = self.uniform.draw(first, last, threads)
            subsets_of_scheme.append(iter(drawn))
        members = [next(subsets_of_scheme[i]) for i in schemes[start:].tolist()]
        return Subsets.stack(members, self.n_columns)

    def penalised_members(self, start: int, stop: int) -> NDArray[np.int64]:
        """Positions, among members `start` to `stop`, of the uniform members of a mixture whose columns
        have a penalty.
        """
        if self.uniform_penalty == 0 or self.scheme_weights is None or self.penalties is None:
            return np.empty(0, dtype=np.int64)
        if not self.scheme_weights.any():
            return np.arange(stop - start)
        schemes = schemes_of_members(self.scheme_weights, stop)[start:]
        return np.flatnonzero(schemes == len(self.penalties))

    def fixed_shape(self) -> tuple[int, int] | None:
        """Number of rows and columns of every member; None if sizes differ from member to member."""
        if self.sampling != "fixed" or self.scheme_weights is not None:
            return None
        n_samples = resolve_size(self.max_samples, self.n_rows, "max_samples")
        if np.ndim(self.max_features) == 0:
            return n_samples, resolve_size(self.max_features, self.n_columns, "max_features")
        size = self.expected_size
        n_features = round(size)
        return (n_samples, n_features) if abs(size - n_features) <= 1e-9 else None

    def member_columns(self, k: float) -> Subsets | MemberLists:
        """Columns of the first k members."""
        if k == np.inf:
            return MemberLists(lambda start, stop: self.draw(start, stop)[0])
        return self.draw(0, int(k))[0]

    def member_rows(self, k: float) -> list[NDArray[np.int64]] | MemberLists:
        """Indices of the rows of the first k members, among the rows passed to ``fit``."""
        count = self.n_rows if self.n_given is None else self.n_given
        rows = np.arange(count) if self.kept_rows is None else self.kept_rows

        def draw_rows(start: int, stop: int) -> list[NDArray[np.int64]]:
            if self.all_rows:
                return [rows] * (stop - start)
            _, samples = self.draw(start, stop)
            assert samples is not None
            return [rows[sample] for sample in samples]

        return MemberLists(draw_rows) if k == np.inf else draw_rows(0, int(k))

    @property
    def expected_size(self) -> float:
        """Expected number of columns of a member; a fraction is not rounded."""
        columns = self.max_features
        if np.ndim(columns):
            return float(np.sum(columns))
        return float(columns if is_count(columns) else columns * self.n_columns)


class MemberLists:
    """Rows or columns of infinitely many members, drawn on access: ``lists[3]``, ``lists[:100]``."""

    def __init__(self, draw: Callable[[int, int], Any]) -> None:
        self._draw = draw

    def __getitem__(self, i: int | slice) -> Any:
        if not isinstance(i, slice):
            return self[i : i + 1][0]
        if i.stop is None or min(i.start or 0, i.stop) < 0:
            raise IndexError(
                "there are infinitely many members: ask for some, counted from the first."
            )
        return self._draw(min(i.start or 0, i.stop), i.stop)[:: i.step]


def schemes_of_members(scheme_weights: ArrayLike, stop: int) -> NDArray[np.int64]:
    """Sampling scheme of each of the first `stop` members of a mixture, in the proportions
    `scheme_weights`.

    Member j of a scheme with fraction w is due at (j + 1/2) / w, and members come in the order of being due.
    So the scheme of a member does not depend on the number of members. With L schemes, the number
    of members of each is off by at most 1/2 + L w / 2.

    Examples
    --------
    >>> schemes_of_members([0.5, 0.25, 0.25], 8).tolist()
    [0, 1, 2, 0, 0, 1, 2, 0]
    """
    weights = np.asarray(scheme_weights, dtype=np.float64)
    n_schemes = len(weights)
    max_counts = np.ceil(weights * (stop + n_schemes)) + 1
    counts = np.where(weights > 0, max_counts, 0).astype(np.int64)
    scheme = np.repeat(np.arange(n_schemes), counts)
    first_of_scheme = np.cumsum(counts) - counts
    number = np.arange(len(scheme)) - first_of_scheme[scheme]
    due = (number + 0.5) / weights[scheme]
    return scheme[np.argsort(due, kind="stable")[:stop]]
