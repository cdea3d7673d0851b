"""How many different rows there are, counted no further than it matters.

Repeated rows add nothing to a rank. The rejection rule of coin flips (see :mod:`olsen.subsets`) compares a member's
columns, at most p, with the different rows there are: from p + 3 on their number makes no difference, so that much is
counted and no more, in any number of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import scipy.sparse as sp

from .._execution.arrays import HOST, Space

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

    def add(self, X: Any, space: Space = HOST) -> DistinctRows:
        """With the rows of X, dense or sparse, in float64: equal numbers are equal whatever their type."""
        found, start, X = self, 0, sp.csr_array(X) if sp.issparse(X) else X
        while start < X.shape[0] and len(found) < self.enough:
            part = X[start : min(start + self.enough, X.shape[0]), :]
            part = part.toarray() if sp.issparse(part) else space.get(part)
            rows = np.ascontiguousarray(part, dtype=np.float64) + 0.0
            new = frozenset(blake2b(row.tobytes(), digest_size=12).digest() for row in rows)
            found, start = found.merge(DistinctRows(self.enough, new)), start + len(rows)
        return found

    def merge(self, other: DistinctRows) -> DistinctRows:
        """Rows of both."""
        return DistinctRows(self.enough, frozenset(sorted(self.seen | other.seen)[: self.enough]))
