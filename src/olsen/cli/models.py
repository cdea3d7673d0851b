"""Models as files: a fitted ensemble with what is needed to predict from a raw table.

Written with skops, which stores plain data and names of types and refuses to build any type it was not told to trust.
Only the ensembles are trusted here, so a file from an unknown source can at worst hold a wrong model.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._estimators.fitted import FittedEnsemble
from .recognition import MODEL_MARK
from .tables import Encoding

__all__ = ["ModelFileError", "SavedModel", "load", "save"]

FORMAT = f"{MODEL_MARK}1"
TRUSTED = ("olsen.OLSEnsembleRegressor", "olsen.OLSEnsembleRegressorCV")


class ModelFileError(ValueError):
    """A file that is not a model, or that holds types which are not trusted."""


@dataclass(frozen=True)
class SavedModel:
    """A fitted estimator, the encoding of its tables, and the sizes of its errors.

    The errors are those of leave-one-out, or of a fit in blocks estimates of them for a sample of the rows.
    """

    estimator: FittedEnsemble
    encoding: Encoding
    residuals: NDArray[np.float64]  # absolute, ascending

    def predict(self, table: Any, first_row: int = 0) -> NDArray[np.float64]:
        """Predictions for the rows of a table, or of a part of one that begins at a row."""
        return np.ravel(self.estimator.predict(self.encoding.features(table, first_row)))

    def half_width(self, coverage: float) -> float:
        """Half the width of intervals that hold new observations with this probability (the plain jackknife).

        The order statistic number ceil(coverage (n + 1)) of the leave-one-out errors; infinite with too few of them.
        The training rows are not in the file, so the jackknife+ with its guarantee is not available from it.
        """
        place = math.ceil(coverage * (len(self.residuals) + 1))
        return float(self.residuals[place - 1]) if place <= len(self.residuals) else math.inf


def save(path: str | os.PathLike[str], model: SavedModel) -> None:
    """Write a model."""
    import skops.io

    content = {
        "format": FORMAT,
        "target": model.encoding.target,
        "columns": json.dumps(model.encoding.columns),  # text: one string is stored instead of thousands of small nodes
        "residuals": model.residuals,
        "model": model.estimator,
    }
    Path(path).write_bytes(skops.io.dumps(content))


def load(path: str | os.PathLike[str]) -> SavedModel:
    """Read a model, refusing what is not one and types that are not trusted."""
    import skops.io

    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"there is no model file {path}.")
    data = path.read_bytes()
    if not zipfile.is_zipfile(io.BytesIO(data)):
        raise ModelFileError(f"{path.name} is not a model written by olsen.")
    try:
        foreign = sorted(set(skops.io.get_untrusted_types(data=data)) - set(TRUSTED))
        content = None if foreign else skops.io.loads(data, trusted=list(TRUSTED))
    except Exception as error:  # skops raises whatever its parsing meets in a file that is not one of its own
        raise ModelFileError(f"{path.name} is not a model written by olsen ({type(error).__name__}).") from error
    if foreign:
        raise ModelFileError(f"{path.name} asks for types that are not trusted: {', '.join(foreign[:5])}.")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ModelFileError(f"{path.name} is a skops file, but not a model written by olsen.")
    return SavedModel(
        content["model"], Encoding(content["target"], json.loads(content["columns"])), content["residuals"]
    )
