"""What least squares can ask of rows, in forms that merge: moments and a triangular factor."""

from .accumulator import Accumulator
from .moments import Moments, centred_rows, from_data, mirror_lower, training_moments, weighted_mean
from .triangle import CentredRows, Triangle

__all__ = [
    "Accumulator",
    "CentredRows",
    "Moments",
    "Triangle",
    "centred_rows",
    "from_data",
    "mirror_lower",
    "training_moments",
    "weighted_mean",
]
