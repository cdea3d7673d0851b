"""Types of the letters and of what is returned.

Letters are NumPy's `ArrayLike`: numbers, sequences, arrays. A result of shape () comes as `np.float64`, the scalar with
an array's methods, as from any ufunc. Functions that answer with a setting, a number to be handed on, say so to type
checkers by overloads; the risks are `Floats` for all letters: make one a number with ``float``.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Number: TypeAlias = float | np.floating[Any] | np.integer[Any]
Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]
Weighted: TypeAlias = tuple[Counts, Floats]  # values of a count, their weights
Numbers: TypeAlias = NDArray[np.floating[Any] | np.integer[Any]]
Law: TypeAlias = tuple[Numbers, Floats, Numbers]  # columns shared, weights, mean number of columns outside both
