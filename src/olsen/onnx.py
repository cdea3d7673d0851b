"""Fitted models as ONNX, for runtimes without Python: an ensemble is one linear map, whatever the
number of members.

>>> import numpy as np
>>> from olsen import OLSEnsembleRegressor, onnx
>>> X = np.random.default_rng(0).standard_normal((50, 4))
>>> model = OLSEnsembleRegressor(random_state=0).fit(X, X[:, 0])
>>> [node.op_type for node in onnx.to_onnx(model, X).graph.node]  # doctest: +SKIP
['Gemm']

The conversion is that of skl2onnx, in which :func:`register` makes our estimators known; it comes
with the extra ``olsen[onnx]`` and is imported when first used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from ._dropout.estimator import DropoutRegressor
from ._estimators.adaptive import AdaptiveOLSEnsembleRegressor
from ._estimators.ensemble import OLSEnsembleRegressor
from ._estimators.ensemble_cv import OLSEnsembleRegressorCV
from ._execution import from_extra
from ._execution.arrays import HOST, type_that_holds

__all__ = ["register", "to_onnx"]

ESTIMATORS = (
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
)


def to_onnx(model: Any, X: Any, **options: Any) -> Any:
    """Convert a fitted model to ONNX.

    Parameters
    ----------
    model : estimator
        One of our estimators, or a pipeline or search that ends in one, with steps that skl2onnx
        knows.
    X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
        Rows as they will come; one is enough, for the types alone. A model for ``float32`` is one
        node ``LinearRegressor`` and computes in single precision, one for ``float64`` is one node
        ``Gemm`` and computes in double precision. Whole numbers and booleans become ``float32``.
        Rows are one input, ``"X"``, but for a pipeline on a pandas data frame, where every column
        is an input under its name.
    **options : dict
        For ``skl2onnx.to_onnx``, such as ``target_opset`` and ``name``.

    Returns
    -------
    model : onnx.ModelProto
        Save it with ``open(path, "wb").write(model.SerializeToString())``. Its output has shape
        (n_samples, n_targets), with one column where the model predicts a vector.

    See Also
    --------
    register : Make our estimators known to ``skl2onnx.to_onnx``.

    Notes
    -----
    Single precision keeps about seven digits of every term, not of the sum: where columns are far
    from zero for their spread (years, temperatures in kelvin), centre them in a pipeline, or
    convert for ``float64``.

    Examples
    --------
    >>> import numpy as np
    >>> from olsen import OLSEnsembleRegressor, onnx
    >>> X = np.random.default_rng(0).standard_normal((50, 4))
    >>> model = OLSEnsembleRegressor(random_state=0).fit(X, X[:, 0])
    >>> proto = onnx.to_onnx(model, X.astype("float32"))  # doctest: +SKIP
    >>> [node.op_type for node in proto.graph.node]  # doctest: +SKIP
    ['LinearRegressor']
    """
    register()
    return _library().to_onnx(model, _one_row(X, by_name=type(model) not in ESTIMATORS), **options)


def register() -> None:
    """Register our estimators with skl2onnx, so that its ``to_onnx`` converts an ensemble, also
    within a pipeline.

    Examples
    --------
    >>> import skl2onnx  # doctest: +SKIP
    >>> olsen.onnx.register()  # doctest: +SKIP
    >>> skl2onnx.to_onnx(
    ...     make_pipeline(StandardScaler(), OLSEnsembleRegressor()).fit(X, y), X[:1]
    ... )  # doctest: +SKIP
    """
    shapes = _library(".common.shape_calculator").calculate_linear_regressor_output_shapes
    for estimator in ESTIMATORS:
        _library().update_registered_converter(
            estimator, f"Olsen{estimator.__name__}", shapes, _convert
        )


def _library(part: str = "") -> Any:
    return from_extra(f"skl2onnx{part}", "onnx", "Writing models as ONNX")


def _one_row(X: Any, *, by_name: bool) -> Any:
    """The first row of X, from which skl2onnx infers types: as an array, or as a pandas data frame
    if `by_name`.
    """
    if sp.issparse(X):
        return X.tocsr()[:1].toarray()
    return X[:1] if by_name and hasattr(X, "iloc") else np.asarray(X)[:1]


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add ``rows @ weights.T + intercepts`` as one node, with the types of scikit-learn's linear
    models.
    """
    model = operator.raw_operator
    check_is_fitted(model)
    types = _library(".common.data_types")
    row_input = operator.inputs[0]
    output = operator.outputs[0]
    shape = row_input.type.shape
    rows = row_input.full_name
    columns = shape[1] if len(shape) == 2 else None
    if columns not in (None, model.n_features_in_):
        raise ValueError(
            f"rows have {columns} columns, but {type(model).__name__} was fitted on"
            f" {model.n_features_in_}: give rows as `predict` takes them."
        )
    kind = types.guess_proto_type(output.type)
    if not isinstance(row_input.type, (types.DoubleTensorType, types.FloatTensorType)):
        rows = scope.get_unique_variable_name("rows")
        name = scope.get_unique_operator_name("Cast")
        container.add_node("Cast", [row_input.full_name], [rows], name=name, to=kind)
    weights = np.atleast_2d(model.coef_)  # (q, p)
    numbers = (weights.astype(np.float64), np.asarray(model.intercept_, dtype=np.float64))
    if (
        isinstance(output.type, types.FloatTensorType)
        and type_that_holds(HOST, np.float32, *numbers) != np.float32
    ):
        largest = float(np.abs(weights).max())
        raise ValueError(
            f"coefficients of at most {largest:.3g} leave the range of single precision, in which"
            " the ONNX model would compute. Give X as float64 rows, or change the units of X"
            " and y."
        )
    names = []
    for name, values in (
        ("weights", weights),
        ("intercepts", np.broadcast_to(model.intercept_, len(weights))),
    ):
        names.append(scope.get_unique_variable_name(name))
        container.add_initializer(names[-1], kind, values.shape, values.ravel().tolist())
    name = scope.get_unique_operator_name("Gemm")
    container.add_node("Gemm", [rows, *names], [output.full_name], name=name, transB=1)
