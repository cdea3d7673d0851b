"""What all displays share: axes and colours, and what they ask of an estimator.

Colours are those of the figures, told apart with any colour vision; markers and line styles say the same again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length

from .._estimators.pipelines import PipelineParts, split_pipeline
from .._execution import from_extra
from ..figures.draw import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, plain_log

Array = NDArray[np.float64]

PALE = "#B3D3E8"  # BLUE at a third, for what stands behind
SERIES = (
    (VERMILLION, "o", "-"), (ORANGE, "s", "--"), (GREEN, "^", "-."),
    (BLUE, "D", "-"), (PURPLE, "v", ":"), (GREY, "P", "--"),
)  # fmt: skip
FEW = 12  # points of a curve that are marked one by one


def panels(ax: Any, second: bool = False, size: Any = (6.0, 4.0), **layout: Any) -> tuple[Any, Any, Any]:
    """The figure, its axes, and those of a second panel or None: given ones, or a new figure of this `layout`.

    Where one axes is given, or nothing is to be drawn on a second one, there is no second panel.
    """
    plt = from_extra("matplotlib.pyplot", "plot", "Drawing a display")
    if ax is None:
        shape = layout if second else {}
        figure, found = plt.subplots(figsize=size if second else (6.0, 4.0), layout="constrained", **shape)
        first, *others = np.atleast_1d(found)
    else:
        first, *others = ax if np.ndim(ax) == 1 and len(ax) == 2 else (ax,)
        if not all(hasattr(one, "plot") for one in (first, *others)):
            raise ValueError(f"ax={ax!r:.60} must be one Axes, as plt.subplots() makes it (or two, for two panels).")
        figure = first.figure
    return figure, first, others[0] if others and second else None


def finish(ax: Any, legend: Any = None, **texts: Any) -> None:
    """Labels, no spines that carry no numbers, and a legend: inside at a place, or above in so many columns.

    A legend above cannot hide anything; the layout of our own figures makes room for it.
    """
    ax.spines[["top", "right"]].set_visible(False)
    handles = texts.pop("handles", None) or ax.get_legend_handles_labels()[0]
    ax.set(**texts)
    if isinstance(legend, str):
        ax.legend(handles=handles, fontsize="small", loc=legend)
    elif legend:
        ax.legend(
            handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=legend, fontsize="small",
            frameon=False, borderaxespad=0.2, columnspacing=1.2, handlelength=1.6,
        )  # fmt: skip


def as_text(names: Any) -> list[str]:
    """Names as labels: a dollar sign is one, and does not begin a formula."""
    return [str(name).replace("$", r"\$") for name in names]


def log_members(ax: Any) -> None:
    """A logarithmic axis with labels such as 5 and 20 instead of powers of ten."""
    ax.set_xscale("log")
    plain_log(ax.xaxis)


def split_model(model: Any, display: type, needs: str, way_out: str) -> PipelineParts:
    """The estimator at the end of a pipeline, and what brings rows to it; raises where it lacks what is needed."""
    parts, lacks = split_pipeline(model), ""
    if not hasattr(parts.estimator, needs):
        lacks = f"needs {needs}, which {type(parts.estimator).__name__} does not have. {way_out}"
    elif parts.inverse is not None and needs != "predict_interval":
        lacks = "would show the transformed target. Give the model's regressor_, and targets as that was fitted to."
    if lacks:
        raise TypeError(f"{display.__name__} {lacks}")
    return parts


def column_names(parts: PipelineParts, given: ArrayLike | None = None) -> NDArray[np.object_]:
    """Names of the columns: the given ones, or those that went into the pipeline, or x0, x1, ..."""
    known = [feature.name for feature in parts.features]
    names = np.array([str(name) for name in np.ravel(known if given is None else given)], dtype=object)
    count = len(known)
    if len(names) != count:
        raise ValueError(f"feature_names has {len(names)} names, but the estimator was fitted on {count} columns.")
    return names


def one_target(values: Array, target: int | None, axis: int = 0, single: int = 1) -> Array:
    """Values of one target; `single` is the number of dimensions that they have where there is only one."""
    count = 1 if values.ndim == single else values.shape[axis]
    if target is None and count > 1:
        raise ValueError(f"the estimator was fitted to {count} targets: choose one of them, target=0 to {count - 1}.")
    number = 0 if target is None else target
    if not 0 <= number < count:
        raise ValueError(f"target={target!r}, but the estimator was fitted to {count} target(s), counted from 0.")
    return values if values.ndim == single else np.asarray(np.take(values, number, axis=axis))


def targets_as_columns(y: Any, n_rows: int, n_targets: int) -> Array:
    """Targets of shape (n_rows, n_targets), checked."""
    found = np.asarray(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"))
    check_consistent_length(found, np.empty(n_rows))
    if found.size != n_rows * n_targets:
        raise ValueError(f"y has shape {found.shape}, but the estimator was fitted to {n_targets} targets.")
    return found.reshape(n_rows, n_targets)
