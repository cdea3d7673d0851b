"""What least squares can ask of rows, in forms that merge: moments, a triangular factor, a count of different rows."""

from .accumulator import Accumulator, DistinctRows
from .moments import Moments, centred_rows, from_data, mirror_lower, training_moments, weighted_mean
from .triangle import CentredRows, Triangle

__all__ = [
    "Accumulator",
    "CentredRows",
    "DistinctRows",
    "Moments",
    "Triangle",
    "centred_rows",
    "from_data",
    "mirror_lower",
    "training_moments",
    "weighted_mean",
]
