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
    columns : array-like of shape (n_members, n_column_bins)
        Share of the columns of a bin that a member has; bins of one column have shares 0 and 1.
    rows : array-like of shape (n_members, n_row_bins), default=None
        The same for rows; None: all members have all rows.
    feature_names : array-like of shape (n_features,)
        Names of the columns.
    n_rows : int, default=None
        Number of rows that ``rows`` stands for.

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
    colorbars_ : list of matplotlib Colorbar
        Where items are in bins.

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
    n_rows: int | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        n_members: int = 20,
        max_bins: int = 120,
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
        max_bins : int, default=120
            Neighbouring columns (and rows) are put together in bins where there are more.
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
        check_arguments("SubsetDisplay", n_members=n_members, max_bins=max_bins)
        count = min(n_members, estimator.n_estimators_)
        features, samples = estimator.feature_subsets_, estimator.sample_subsets_
        if isinstance(features, list):
            features = features[int(one_target(np.arange(len(features), dtype=float)[:, None], target)[0])]
        given = [samples[i] for i in range(count)]
        n_rows = 1 + max(int(rows.max(initial=0)) for rows in given)
        all_rows = all(np.array_equal(given[0], rows) for rows in given)
        display = cls(
            _shares([features[i] for i in range(count)], estimator.n_features_in_, max_bins),
            column_names(parts, feature_names),
            rows=None if all_rows else _shares(given, n_rows, max_bins),
            n_rows=None if all_rows else n_rows,
        )
        return display.plot(ax)

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
        self.colorbars_: list[Any] = []
        self.image_ = self._draw(self.ax_, self.columns, len(self.feature_names), "column", BLUE)
        self._name_columns(self.ax_, np.asarray(self.feature_names, dtype=object))
        self.rows_image_ = None
        if self.rows_ax_ is not None and self.rows is not None:
            n_rows = self.n_rows or self.rows.shape[1]
            self.rows_image_ = self._draw(self.rows_ax_, self.rows, n_rows, "row", VERMILLION)
            self.rows_ax_.set_ylabel("")
        return self

    def _draw(self, ax: Any, shares: Array, n_items: int, item: str, color: str) -> Any:
        from matplotlib.colors import LinearSegmentedColormap

        members, bins = shares.shape
        image = ax.imshow(
            shares, cmap=LinearSegmentedColormap.from_list("share", ["white", color]), vmin=0.0,
            vmax=float(shares.max(initial=0.0)) or 1.0, aspect="auto", interpolation="nearest",
            extent=(-0.5, n_items - 0.5, members + 0.5, 0.5),
        )  # fmt: skip
        for line in np.arange(1.5, members):
            ax.axhline(line, color="#CCCCCC", lw=0.5)
        if bins < n_items:
            few, many = n_items // bins, -(-n_items // bins)
            label = f"share used of {few if few == many else f'{few}-{many}'} neighbouring {item}s"
            self.colorbars_.append(ax.figure.colorbar(image, ax=ax, label=label))
        finish(ax, xlabel=f"{item}s", ylabel="member")
        ax.yaxis.get_major_locator().set_params(integer=True)
        return image

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


def _shares(given: list[NDArray[np.int64]], n_items: int, max_bins: int) -> Array:
    """Share of every bin of neighbouring items that each member has, (members, bins)."""
    bins = np.arange(n_items) * min(max_bins, n_items) // n_items
    size = np.bincount(bins)
    return np.array([np.bincount(bins[items], minlength=len(size)) / size for items in given])
