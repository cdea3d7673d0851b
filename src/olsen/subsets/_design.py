"""Everything that draws the members of one ensemble, so that they can be drawn again at any time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._compressed import Mapper, Subsets
from ._determinantal import Determinantal
from ._drawing import draw_members, resolve_size


@dataclass(frozen=True)
class Design:
    """How members are drawn: from which rows and columns, by which law, with which seed.

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
        Different rows, for that rule, where rows are in memory; None: all rows.
    n_given : int or None, default=None
        Rows that were handed over, those of weight zero included; None: `n_rows`.
    kept_rows : ndarray or None, default=None
        Numbers of the rows with positive weight among those handed over, where they are known and not all.
    shares : ndarray of shape (n_laws,) or None, default=None
        Share of the members that each law has, where there are several: determinantal ones, then one of uniform
        members of size `max_features` if there is one share more.
    spreads : ndarray of shape (n_determinantal, n_columns) or None, default=None
        Of the determinantal laws.
    penalties : ndarray of shape (n_determinantal,) or None, default=None
        Of the same.
    process : tuple of Determinantal or None, default=None
        What determinantal members are drawn from, made from the data once: members can be drawn again without them.
    column_order : ndarray of shape (n_columns,) or None, default=None
        Column that stands at each position from which uniform members are drawn; None: the order of the data.

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
    shares: NDArray[np.float64] | None = None
    spreads: NDArray[np.float64] | None = None
    penalties: NDArray[np.float64] | None = None
    process: tuple[Determinantal, ...] | None = None
    column_order: NDArray[np.int64] | None = None

    @property
    def uniform(self) -> Design:
        """Of several laws, that of uniform members."""
        return replace(self, sampling="fixed", shares=None, spreads=None, penalties=None, process=None)

    @property
    def uniform_share(self) -> float:
        """Of several laws, the share of uniform members."""
        assert self.shares is not None and self.penalties is not None
        return float(self.shares[-1]) if len(self.shares) > len(self.penalties) else 0.0

    @property
    def all_rows(self) -> bool:
        """Whether members see every row: the fraction 1.0, not the count of one."""
        return isinstance(self.max_samples, float) and self.max_samples == 1.0

    def draw(self, start: int, stop: int, mapper: Mapper | None = None) -> tuple[Subsets, Subsets | None]:
        """Columns of members `start` to `stop`, and their rows; None: all rows."""
        if self.sampling == "determinantal" or self.shares is not None:
            assert self.process is not None
            return self._draw_laws(self.process, start, stop, mapper), None
        features, samples = draw_members(
            self.n_rows, self.n_columns, stop, start=start, seed=self.seed, max_features=self.max_features,
            max_samples=self.max_samples, sampling=self.sampling, design=self.kind,
            fit_intercept=self.fit_intercept, distinct_rows=self.distinct_rows, mapper=mapper,
        )  # fmt: skip
        if self.column_order is not None:
            features = Subsets.stack([np.sort(self.column_order[subset]) for subset in features], self.n_columns)
        return features, samples

    def _draw_laws(self, process: tuple[Determinantal, ...], start: int, stop: int, mapper: Mapper | None) -> Subsets:
        """Columns of determinantal members, of several laws where there are shares, uniform ones last."""
        if self.shares is None:
            return process[0].draw(start, stop, seed=self.seed, mapper=mapper)
        law, drawn = laws_of_members(self.shares, stop), []
        for i in range(len(self.shares)):
            first, last = (int(np.sum(law[:end] == i)) for end in (start, stop))
            if i < len(process):
                drawn.append(iter(process[i].draw(first, last, seed=self.seed, mapper=mapper, law=i)))
            else:
                drawn.append(iter(self.uniform.draw(first, last, mapper)[0]))
        return Subsets.stack([next(drawn[i]) for i in law[start:].tolist()], self.n_columns)

    def fixed_shape(self) -> tuple[int, int] | None:
        """Rows and columns of every member; None where sizes differ from member to member."""
        if self.sampling != "fixed" or self.shares is not None:
            return None
        if np.ndim(self.max_features):
            total = float(np.sum(self.max_features))
            if abs(total - round(total)) > 1e-9:
                return None
            columns = round(total)
        else:
            columns = resolve_size(self.max_features, self.n_columns, "max_features")
        return resolve_size(self.max_samples, self.n_rows, "max_samples"), columns

    def member_columns(self, k: float) -> Subsets | MemberLists:
        """Columns of the first k members."""
        return MemberLists(lambda start, stop: self.draw(start, stop)[0]) if k == np.inf else self.draw(0, int(k))[0]

    def member_rows(self, k: float) -> list[NDArray[np.int64]] | MemberLists:
        """Rows of the first k members, numbered as they were handed over."""
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
        """Columns of a member; a fraction is not rounded."""
        columns = self.max_features
        if np.ndim(columns):
            return float(np.sum(columns))
        return float(columns if isinstance(columns, (int, np.integer)) else columns * self.n_columns)


class MemberLists:
    """Rows or columns of infinitely many members, drawn as they are asked for: ``lists[3]``, ``lists[:100]``."""

    def __init__(self, draw: Callable[[int, int], Any]) -> None:
        self._draw = draw

    def __getitem__(self, i: int | slice) -> Any:
        bounds = (i.start or 0, i.stop) if isinstance(i, slice) else (i, i)
        if bounds[1] is None or min(bounds) < 0:
            raise IndexError("there are infinitely many members: ask for some, counted from the first.")
        return self._draw(0, i.stop)[i] if isinstance(i, slice) else self._draw(i, i + 1)[0]


def laws_of_members(shares: ArrayLike, stop: int) -> NDArray[np.int64]:
    """Law of each of the first members: whatever their number, every law has its share but for about one member.

    The member j of a law with share w is due at (j + 1/2) / w, and members come as they are due. So a member's law does
    not depend on how many follow. Of L laws, each is at most 1/2 + L w / 2 members off its share.

    Examples
    --------
    >>> from olsen.subsets import laws_of_members
    >>> laws_of_members([0.5, 0.25, 0.25], 8).tolist()
    [0, 1, 2, 0, 0, 1, 2, 0]
    """
    share = np.asarray(shares, dtype=np.float64)
    count = np.where(share > 0, np.ceil(share * (stop + len(share))) + 1, 0).astype(np.int64)
    law = np.repeat(np.arange(len(share)), count)
    number = np.arange(len(law)) - np.repeat(np.cumsum(count) - count, count)
    return law[np.argsort((number + 0.5) / share[law], kind="stable")[:stop]]
