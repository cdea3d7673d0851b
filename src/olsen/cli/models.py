"""Models as files: a fitted ensemble with what is needed to predict from a raw table.

Written with skops, which stores plain data and names of types. Read without it: the container is checked first
(`archives`), then the whole content (`schema`), and only then is one of the two ensembles built from plain data. A file
from an unknown source can at worst hold a wrong model.
"""

from __future__ import annotations

import io
import json
import math
import os
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .. import OLSEnsembleRegressor, OLSEnsembleRegressorCV, __version__
from .._estimators.fitted import FittedEnsemble
from . import archives, schema
from .recognition import MODEL_MARK
from .shown_text import shortened
from .step_encoding import StepEncoding
from .tables import Encoding

__all__ = ["ModelFileError", "SavedModel", "load", "save"]

SUFFIX = ".skops"
FORMAT = f"{MODEL_MARK}{schema.FORMAT}"
ENSEMBLES: dict[str, type[FittedEnsemble]] = {
    "OLSEnsembleRegressor": OLSEnsembleRegressor,
    "OLSEnsembleRegressorCV": OLSEnsembleRegressorCV,
}


class ModelFileError(ValueError):
    """A file that is not a model, or not one that can be used, and why."""


@dataclass(frozen=True)
class SavedModel:
    """A fitted estimator, the encoding of its tables, and the sizes of its errors.

    The errors are those of left-out rows, or of a fit in blocks estimates of them for a sample of the rows.
    """

    estimator: FittedEnsemble
    encoding: Encoding | StepEncoding
    residuals: NDArray[np.float64]  # absolute, ascending

    def predict(self, table: Any, first_row: int = 0, coverage: float | None = None) -> NDArray[np.float64]:
        """Predictions for the rows of a table, or of a part of one that begins at a row, (rows, 1).

        With a `coverage` the ends of intervals that hold new observations with this probability, (rows, 3): those of
        ``predict_interval`` where the file holds what they need, otherwise of one width.
        """
        X = self.encoding.features(table, first_row)
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.ravel(self.estimator.predict(X))
        if not np.isfinite(found).all():
            row = first_row + int(np.argmin(np.isfinite(found))) + 1
            raise ModelFileError(
                f"the prediction of row {row} is not finite: its cells or the model's coefficients are too large."
            )
        if coverage is None or not len(found):
            return np.tile(found[:, None], 1 if coverage is None else 3)
        if not self.has_intervals:
            half = self.half_width(coverage)
            return np.column_stack([found, found - half, found + half])
        return np.column_stack([found, self.estimator.predict_interval(X, coverage).reshape(-1, 2)])

    def for_file(self, rows: bool) -> SavedModel:
        """What a file holds: the training rows too, where they are wanted for intervals and standard errors."""
        return replace(self, estimator=self.estimator._for_file(rows))

    @property
    def has_intervals(self) -> bool:
        """Whether the model has what intervals that follow the rows need: the folds it was chosen in, or all rows."""
        fitted = self.estimator._result()
        if fitted.folds is not None:
            return all(fit.residual is not None for fit in fitted.folds)
        return fitted.rows is not None

    def half_width(self, coverage: float) -> float:
        """Half the width of intervals that hold new observations with this probability (the plain jackknife).

        The order statistic number ceil(coverage (n + 1)) of the leave-one-out errors; infinite with too few of them.
        """
        if not len(self.residuals):
            raise ModelFileError(
                "the model has no errors of left-out rows, from which intervals are made: it was saved from a pickle, "
                "or after a fit in blocks. Fit it in memory and save it again."
            )
        place = math.ceil(coverage * (len(self.residuals) + 1))
        return float(self.residuals[place - 1]) if place <= len(self.residuals) else math.inf


def save(path: str | os.PathLike[str], model: SavedModel) -> None:
    """Write a model; one that could not be read again is refused."""
    import skops.io

    content = {
        "format": FORMAT,
        "olsen": __version__,  # for those who meet the file with an older one
        "target": model.encoding.target,
        **_described(model.encoding),
        "residuals": model.residuals,
        "model": model.estimator,
    }
    data = skops.io.dumps(content)
    _read(io.BytesIO(data), "what was fitted")
    Path(path).write_bytes(data)


def _described(encoding: Encoding | StepEncoding) -> dict[str, str]:
    """Columns or steps as text: one string is stored instead of thousands of small nodes."""
    if isinstance(encoding, Encoding):
        return {"columns": json.dumps(encoding.columns)}
    return {"steps": json.dumps(encoding.steps.plain(), allow_nan=False)}


def load(path: str | os.PathLike[str]) -> SavedModel:
    """Read a model, refusing what is not one, before anything is built from it."""
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"there is no model file {shortened(path, 200)}.")
    with open(path, "rb") as file:
        return _read(file, shortened(path.name, 200))


def _read(file: IO[bytes], name: str) -> SavedModel:
    try:
        with archives.opened(file) as archive:
            content = schema.read_content(archive, _parameters)
    except archives.ArchiveError as error:
        raise ModelFileError(f"{name} is not a model written by olsen: {error}.") from error
    except schema.FormatError as error:
        raise ModelFileError(_other_format(name, error)) from error
    except (schema.ForeignError, schema.UntrustedError) as error:
        raise ModelFileError(f"{name} {error}.") from error
    except schema.SchemaError as error:
        raise ModelFileError(f"{name} is a damaged model: {error}.") from error
    ensemble = ENSEMBLES[content.ensemble]
    estimator = ensemble.__new__(ensemble)
    estimator.__setstate__(content.state)
    encoding: Encoding | StepEncoding = Encoding(content.target, content.columns)
    if content.steps is not None:
        encoding = StepEncoding(content.target, content.steps)
    return SavedModel(estimator, encoding, content.residuals)


def _parameters(ensemble: str) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in signature(ENSEMBLES[ensemble]).parameters.items()}


def _other_format(name: str, error: schema.FormatError) -> str:
    wanted = f"'olsen>={error.version}'" if error.version else "--upgrade olsen"
    return (
        f"{name} is a model of format {error.number}; this is olsen {__version__}, which reads format "
        f"{schema.FORMAT}. Install the version that wrote it: pip install {wanted}"
    )
