"""Members of several laws in given shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._compressed import Subsets

__all__ = ["draw_mixture", "laws_of_members"]


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


def draw_mixture(
    shares: NDArray[np.float64], laws: Sequence[Callable[[int, int], Subsets]], start: int, stop: int, n_columns: int
) -> Subsets:
    """Columns of members `start` to `stop`, of which each law, a function that draws its own members, has its share."""
    law = laws_of_members(shares, stop)
    before, after = (np.bincount(law[:end], minlength=len(laws)) for end in (start, stop))
    drawn = [laws[i](int(before[i]), int(after[i])) for i in np.flatnonzero(after > before).tolist()]
    if not drawn:
        return Subsets(n_columns, np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int64))
    return _interleaved(drawn, law[start:])


def _interleaved(drawn: list[Subsets], law: NDArray[np.int64]) -> Subsets:
    """Members of several draws in the order in which their laws come."""
    place = np.argsort(law, kind="stable")  # where the members of one law after the other go
    sizes = np.empty(len(law), dtype=np.int64)
    sizes[place] = np.concatenate([features.sizes for features in drawn])
    ends = np.concatenate([[0], np.cumsum(sizes)])
    own = np.repeat(ends[place], sizes[place])
    within = np.arange(ends[-1]) - np.repeat(np.cumsum(sizes[place]) - sizes[place], sizes[place])
    indices = np.empty(int(ends[-1]), dtype=np.int64)
    indices[own + within] = np.concatenate([features.indices for features in drawn])
    return Subsets(drawn[0].n_items, ends, indices)
