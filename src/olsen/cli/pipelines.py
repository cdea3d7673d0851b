"""Models as scikit-learn pipelines, and back: what `olsen.save` and `olsen.load` do around the files of `models`.

A file never names a type that is then looked up. What comes before an ensemble is described in plain values (`steps`),
and only transformers that have a description are built from it; all others are refused when a model is saved.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .._execution import messages
from .._execution.files import atomically
from . import models
from .step_builder import TARGET_ATTRIBUTE, built
from .step_descriptions import described, steps_of_columns
from .step_encoding import StepEncoding
from .tables import Encoding

__all__ = ["load", "save"]

TARGET = "prediction"  # the name of a target that nobody named


def save(model: Any, path: str | os.PathLike[str], *, target: str | None = None, intervals: bool = True) -> None:
    """Write a fitted ensemble, or a pipeline that ends with one, to a model file of the command line.

    ``olsen predict`` reads it, and so does :func:`load`. The file holds plain numbers and texts; nothing in it is
    executed when it is read.

    Parameters
    ----------
    model : OLSEnsembleRegressor, OLSEnsembleRegressorCV or Pipeline
        Fitted, with one target. Before the ensemble a pipeline may have ColumnTransformer, OneHotEncoder,
        OrdinalEncoder, SimpleImputer, StandardScaler and nested pipelines; anything else is refused.
        Parameters that are objects, such as splitters and random states, are not kept: they predict nothing.
    path : path
        Where to write, a name that ends with ``.skops``. A file that is there is replaced once the new one is complete.
    target : str, default=None
        Name that predictions get in tables; by default that of the file the model came from, or "prediction".
    intervals : bool, default=True
        Whether to keep the training rows, from which standard errors and most intervals are computed: 8 bytes for each
        row and column, up to 64 MiB (the model's `keep_rows`). Intervals of the default model do not need them;
        others have one width without them.

    See Also
    --------
    load : Read such a file.

    Examples
    --------
    >>> import numpy as np, olsen, tempfile, os
    >>> from olsen.datasets import load_soil_carbon
    >>> X, y = load_soil_carbon(return_X_y=True)
    >>> model = olsen.OLSEnsembleRegressor(50, max_features=20, random_state=0).fit(X[:, ::10], y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "carbon.skops")
    ...     olsen.save(model, path, target="carbon")
    ...     again = olsen.load(path)
    >>> bool(np.allclose(again.predict(X[:, ::10]), model.predict(X[:, ::10])))
    True
    """
    path = Path(path)
    if path.suffix.lower() != models.SUFFIX:
        raise ValueError(f"path={str(path)!r} must end with {models.SUFFIX}, the suffix of model files.")
    steps, ensemble = described(model)
    if ensemble.coef_.ndim == 2 and len(ensemble.coef_) != 1:
        raise ValueError(
            f"the model has {len(ensemble.coef_)} targets, but a model file holds one. Fit and save a model for each."
        )
    name = str(target or getattr(model, TARGET_ATTRIBUTE, TARGET))
    kept = ensemble._for_file(intervals)
    errors = kept._left_out_errors()
    if intervals and not len(errors):
        messages.warn(
            "the model does not know its training rows (it came from a pickle, or was fitted from blocks, a cluster, a "
            "device or with partial_fit), so the file holds no errors and olsen predict --interval will refuse it.",
        )
    saved = models.SavedModel(kept, StepEncoding(name, steps), errors)
    atomically(path, lambda file: models.save(file, saved))


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model file of the command line, or of :func:`save`, as a fitted estimator.

    Parameters
    ----------
    path : path
        A file written by ``olsen fit --out`` or :func:`save`. It is checked whole before anything is built, and only
        listed types are built: a file from an unknown source can at worst hold a wrong model.

    Returns
    -------
    model : Pipeline, OLSEnsembleRegressor or OLSEnsembleRegressorCV
        What was saved. A model of the command is a pipeline of a ColumnTransformer, which takes data frames with the
        columns of the table that was fitted, and the ensemble. The name of the target is in ``target_name_``.

    See Also
    --------
    save : Write such a file.

    Examples
    --------
    >>> import numpy as np, olsen, tempfile, os
    >>> X = np.arange(12.0).reshape(6, 2) ** 2
    >>> model = olsen.OLSEnsembleRegressor(10, max_features=1, random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     olsen.save(model, os.path.join(folder, "m.skops"))
    ...     olsen.load(os.path.join(folder, "m.skops"))
    OLSEnsembleRegressor(max_features=1, n_estimators=10, random_state=0)
    """
    saved = models.load(path)
    encoding = saved.encoding
    steps = steps_of_columns(encoding) if isinstance(encoding, Encoding) else encoding.steps
    return built(steps, saved.estimator, encoding.target)
