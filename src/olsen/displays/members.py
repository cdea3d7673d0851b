"""Which columns and rows the members of an ensemble were given."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._estimators.inputs import check_arguments
from ..figures.draw import BLUE, VERMILLION
from ._scaffold import Array, as_text, column_names, finish, one_target, panels, split_model


@dataclass(eq=False, repr=False)
class SubsetDisplay:
    """The submatrices of the first members, as an image: one line a member, dark what it was given.

    Parameters
    ----------
    columns : array-like of shape (n_members, n_features)
        One where a member has the column, zero elsewhere.
    feature_names : array-like of shape (n_features,)
        Names of the columns.
    rows : array-like of shape (n_members, n_rows), default=None
        The same for rows; None: all members have all rows.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where columns were drawn.
    rows_ax_ : matplotlib Axes or None
        Where rows were drawn.
    figure_ : matplotlib Figure
        The figure of both.
    image_ : matplotlib AxesImage
        Columns.
    rows_image_ : matplotlib AxesImage or None
        Rows.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from olsen import OLSEnsembleRegressor
    >>> from olsen.displays import SubsetDisplay
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = OLSEnsembleRegressor(max_features=3, random_state=0).fit(X, y)
    >>> display = SubsetDisplay.from_estimator(model, n_members=8)
    >>> display.columns.shape, display.columns.sum(axis=1).tolist()[:3]
    ((8, 10), [3.0, 3.0, 3.0])
    """

    __module__ = "olsen.displays"

    columns: Array
    feature_names: NDArray[np.object_]
    _: KW_ONLY
    rows: Array | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        n_members: int = 20,
        feature_names: ArrayLike | None = None,
        target: int | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw the columns, and the rows where members have not all of them.

        Parameters
        ----------
        estimator : OLSEnsembleRegressor or OLSEnsembleRegressorCV
            A fitted one, or a pipeline with one; subsets are drawn again from its seed.
        n_members : int, default=20
            How many of the first members to show.
        feature_names : array-like of shape (n_features,), default=None
            Names of the columns; None: those seen in `fit`.
        target : int, default=None
            Which of several targets, where each has members of its own.
        ax : matplotlib Axes or two of them, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : SubsetDisplay
            With the drawing done.
        """
        parts = split_model(estimator, cls, "feature_subsets_", "Fit an OLSEnsembleRegressor instead.")
        estimator = parts.estimator
        check_arguments("SubsetDisplay", n_members=n_members)
        count = min(n_members, estimator.n_estimators_)
        features, samples = estimator.feature_subsets_, estimator.sample_subsets_
        if isinstance(features, list):
            features = features[int(one_target(np.arange(len(features), dtype=float)[:, None], target)[0])]
        given = [samples[i] for i in range(count)]
        n_rows = 1 + max(int(rows.max(initial=0)) for rows in given)
        all_rows = all(np.array_equal(given[0], rows) for rows in given)
        columns = _marked([features[i] for i in range(count)], estimator.n_features_in_)
        rows = None if all_rows else _marked(given, n_rows)
        return cls(columns, column_names(parts, feature_names), rows=rows).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the images.

        Parameters
        ----------
        ax : matplotlib Axes or two of them, default=None
            Where to draw; None: a new figure. On a single one, rows are left out.

        Returns
        -------
        display : SubsetDisplay
        """
        self.figure_, self.ax_, self.rows_ax_ = panels(ax, self.rows is not None, ncols=2)
        self.image_ = _draw(self.ax_, self.columns, "column", BLUE)
        self._name_columns(self.ax_, np.asarray(self.feature_names, dtype=object))
        self.rows_image_ = None
        if self.rows_ax_ is not None and self.rows is not None:
            self.rows_image_ = _draw(self.rows_ax_, self.rows, "row", VERMILLION)
            self.rows_ax_.set_ylabel("")
        return self

    def _name_columns(self, ax: Any, names: NDArray[np.object_]) -> None:
        """All names where there are up to 25, six otherwise; turned where they would touch each other."""
        p = len(names)
        shown = np.arange(p) if p <= 25 else np.unique(np.rint(np.linspace(0, p - 1, 6)).astype(int))
        room = 60 if self.rows_ax_ is None or p > 25 else 25  # letters
        crowded = max(map(len, names[shown])) * len(shown) > room
        turned = 90 if p <= 25 else 30
        ax.set_xticks(shown, as_text(names[shown]), rotation=turned if crowded else 0, fontsize="small")
        for line in np.arange(0.5, p - 1) if p <= 25 else ():
            ax.axvline(line, color="#CCCCCC", lw=0.5)


def _draw(ax: Any, marked: Array, item: str, color: str) -> Any:
    from matplotlib.colors import ListedColormap

    members, count = marked.shape
    extent = (-0.5, count - 0.5, members + 0.5, 0.5)
    image = ax.imshow(marked, cmap=ListedColormap(["white", color]), vmin=0.0, vmax=1.0, aspect="auto", extent=extent)
    for line in np.arange(1.5, members):
        ax.axhline(line, color="#CCCCCC", lw=0.5)
    finish(ax, xlabel=f"{item}s", ylabel="member")
    ax.yaxis.get_major_locator().set_params(integer=True)
    return image


def _marked(given: list[NDArray[np.int64]], n_items: int) -> Array:
    """One for the items that each member has, (members, items)."""
    return np.array([np.bincount(items, minlength=n_items) for items in given], dtype=np.float64)
