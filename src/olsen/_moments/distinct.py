"""How many different rows there are, counted no further than it matters.

Repeated rows add nothing to a rank. The rejection rule of coin flips (see :mod:`olsen.subsets`) compares a member's
columns, at most p, with the different rows there are: from p + 3 on their number makes no difference, so that much is
counted and no more, in any number of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["DistinctRows"]


@dataclass(frozen=True)
class DistinctRows:
    """Different rows seen so far, at most `enough` of them; two of these merge."""

    enough: int
    seen: frozenset[bytes] = frozenset()  # digests: the same in every process

    @classmethod
    def of_columns(cls, p: int) -> DistinctRows:
        """None seen yet, of rows with p columns."""
        return cls(p + 3)

    def __len__(self) -> int:
        return len(self.seen)

    def add(self, X: Any) -> DistinctRows:
        """With the rows of a dense or sparse X in float64, so that equal numbers are equal whatever their type."""
        found, start = self, 0
        while start < X.shape[0] and len(found) < self.enough:
            part = X[start : start + self.enough]
            rows = np.ascontiguousarray(part.toarray() if sp.issparse(part) else part, dtype=np.float64) + 0.0
            new = frozenset(blake2b(row.tobytes(), digest_size=12).digest() for row in rows)
            found, start = found.merge(DistinctRows(self.enough, new)), start + len(rows)
        return found

    def merge(self, other: DistinctRows) -> DistinctRows:
        """Rows of both."""
        return DistinctRows(self.enough, frozenset(sorted(self.seen | other.seen)[: self.enough]))

    @staticmethod
    def merged(parts: list[DistinctRows]) -> DistinctRows:
        """Rows of all of them."""
        return reduce(DistinctRows.merge, parts)
