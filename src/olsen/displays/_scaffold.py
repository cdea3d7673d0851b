"""Common parts of all displays: axes, series and checks of estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length

from .._estimators.pipelines import PipelineParts, split_pipeline
from .._execution import from_extra
from .._report.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION, label_plainly

Array = NDArray[np.float64]

SERIES = (
    (VERMILION, "o", "-"),
    (ORANGE, "s", "--"),
    (GREEN, "^", "-."),
    (BLUE, "D", "-"),
    (PURPLE, "v", ":"),
    (GREY, "P", "--"),
)
MAX_MARKED_POINTS = 12  # of a curve; longer curves are drawn without markers


def panels(
    ax: Any, second: bool = False, size: Any = (6.0, 4.0), **layout: Any
) -> tuple[Any, Any, Any]:
    """The figure, its axes, and the axes of a second panel or None.

    Axes are taken from `ax`, or from a new figure of this `layout` if `ax` is None. The second
    panel is None if `ax` is a single Axes, or if `second` is False.
    """
    plt = from_extra("matplotlib.pyplot", "plot", "Drawing a display")
    if ax is None:
        if second:
            figure, panel_axes = plt.subplots(figsize=size, layout="constrained", **layout)
        else:
            figure, panel_axes = plt.subplots(figsize=(6.0, 4.0), layout="constrained")
        first, *further = np.atleast_1d(panel_axes)
        return figure, first, further[0] if further else None
    first, *further = ax if np.ndim(ax) == 1 and len(ax) == 2 else (ax,)
    if not all(hasattr(axes, "plot") for axes in (first, *further)):
        raise ValueError(
            f"ax={ax!r:.60} must be one Axes, as plt.subplots() makes it (or two, for two panels)."
        )
    return first.figure, first, further[0] if further and second else None


def finish(ax: Any, legend: int | str, **labels: Any) -> None:
    """Set labels, hide the spines without numbers and add a legend.

    `legend` is a location inside the axes, or the number of columns of a legend above the axes. A
    legend above cannot hide anything; the constrained layout of new figures makes room for it.
    """
    ax.spines[["top", "right"]].set_visible(False)
    handles = labels.pop("handles", None) or ax.get_legend_handles_labels()[0]
    ax.set(**labels)
    layout: dict[str, Any] = {"loc": legend}
    if not isinstance(legend, str):
        layout = {
            "loc": "lower right",
            "bbox_to_anchor": (1.0, 1.0),
            "ncols": legend,
            "frameon": False,
            "borderaxespad": 0.2,
            "columnspacing": 1.2,
            "handlelength": 1.6,
        }
    ax.legend(handles=handles, fontsize="small", **layout)


def as_text(names: Any) -> list[str]:
    """Names as labels, in which a dollar sign is printed and does not begin a formula."""
    return [str(name).replace("$", r"\$") for name in names]


def log_members(ax: Any) -> None:
    """Make the x axis logarithmic, with labels such as 5 and 20 instead of powers of ten."""
    ax.set_xscale("log")
    label_plainly(ax.xaxis)


def split_model(model: Any, display: type, needs: str, way_out: str) -> PipelineParts:
    """The estimator at the end of a pipeline and the steps before it; raises if the estimator lacks
    `needs`.
    """
    parts = split_pipeline(model)
    if not hasattr(parts.estimator, needs):
        name = type(parts.estimator).__name__
        raise TypeError(f"{display.__name__} needs {needs}, which {name} does not have. {way_out}")
    if parts.inverse is not None and needs != "predict_interval":
        raise TypeError(
            f"{display.__name__} would show the transformed target. Give the model's regressor_,"
            " and targets as that was fitted to."
        )
    return parts


def column_names(
    parts: PipelineParts, feature_names: ArrayLike | None = None
) -> NDArray[np.object_]:
    """Names of the columns: `feature_names`, or the names that went into the pipeline, or x0, x1,
    ...
    """
    fitted_names = [feature.name for feature in parts.features]
    given_names = np.ravel(fitted_names if feature_names is None else feature_names)
    if len(given_names) != len(fitted_names):
        raise ValueError(
            f"feature_names has {len(given_names)} names, but the estimator was fitted on"
            f" {len(fitted_names)} columns."
        )
    return np.array([str(name) for name in given_names], dtype=object)


def one_target(values: Array, target: int | None, axis: int = 0, single: int = 1) -> Array:
    """Values of one target; `single` is the number of dimensions of `values` if there is only one
    target.
    """
    has_one_target = values.ndim == single
    count = 1 if has_one_target else values.shape[axis]
    if target is None and count > 1:
        raise ValueError(
            f"the estimator was fitted to {count} targets: choose target=0 to {count - 1}."
        )
    number = 0 if target is None else target
    if not 0 <= number < count:
        raise ValueError(
            f"target={target!r}, but the estimator was fitted to {count} target(s), counted from 0."
        )
    return values if has_one_target else np.asarray(np.take(values, number, axis=axis))


def targets_as_columns(y: Any, n_rows: int, n_targets: int) -> Array:
    """Targets of shape (n_rows, n_targets), checked."""
    targets = np.asarray(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"))
    check_consistent_length(targets, np.empty(n_rows))
    if targets.size != n_rows * n_targets:
        raise ValueError(
            f"y has shape {targets.shape}, but the estimator was fitted to {n_targets} targets."
        )
    return targets.reshape(n_rows, n_targets)
