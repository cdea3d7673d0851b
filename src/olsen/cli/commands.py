"""The commands: fit, predict, show, compare, risk, explore, reproduce.

Each looks at its numbers and its outputs first, then imports what it needs and does its work. Results go to standard
output, as a table or with ``--json``.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .. import __version__
from .._execution.extras import from_extra
from .._execution.files import atomically
from .._report.formatting import escape_control, quoted
from . import outputs, terminal
from .help_texts import EPILOGUE, EXAMPLES, HELP, flowing, shown_default
from .outputs import MODEL, PAGE, REPORT, Output
from .program import main
from .terminal import UsageError

if TYPE_CHECKING:
    import numpy as np
    from cyclopts import App
    from numpy.typing import NDArray

    from .. import OLSEnsembleRegressorCV
    from .._persistence import SavedModel
    from .encoding import Encoding
    from .fitting import Reading

    Array = NDArray[np.float64]

__all__ = ["UsageError", "app", "compare", "explore", "fit", "main", "predict", "reproduce", "risk", "show"]

Members = int | Literal["all"]
Inclusion = Literal["auto", "uniform", "ridge"]
MOST_MEMBERS = 10**9


def app() -> App:
    """The commands as an application of cyclopts."""
    from cyclopts import App, Parameter

    options = Parameter(negative=(), converter=_converted, show_default=shown_default)  # no --no-json
    found = App(name="olsen", help=HELP, help_epilogue=EPILOGUE, version=__version__, help_format="plaintext",
                default_parameter=options, suppress_keyboard_interrupt=False)  # fmt: skip
    commands: list[Callable[..., None]] = [fit, predict, show, compare, risk, explore, reproduce]
    for place, command in enumerate(commands):
        command.__doc__ = flowing(command.__doc__ or "")
        found.command(command, help_epilogue=EXAMPLES[command.__name__], sort_key=place)

    found.register_install_completion_command(
        help="Let the shell complete commands, options and file names with the tab key (bash, zsh, fish).",
        help_epilogue=EXAMPLES["completion"], group="Setup",
    )  # fmt: skip
    return found


def _converted(kind: Any, tokens: Any) -> Any:
    """Arguments as values: whole numbers must be whole, all else is left to cyclopts."""
    from cyclopts import convert

    if kind not in (int, Members):
        return convert(kind, tokens)
    value, wanted = tokens[0].value, "a whole number" if kind is int else "a whole number or 'all'"
    if kind is not int and value == "all":
        return value
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{value} is not {wanted}.") from None


def fit(
    data: Path | None = None,
    /,
    *,
    target: str | None = None,
    out: Path | None = None,
    report: Path | None = None,
    drop: list[str] | None = None,
    missing: Literal["error", "drop", "mean"] = "error",
    dates: list[str] | None = None,
    ordinal: list[str] | None = None,
    id: list[str] | None = None,
    weight: str | None = None,
    groups: str | None = None,
    out_of_core: bool = False,
    members: Members = "all",
    inclusion: Inclusion = "auto",
    seed: int = 0,
    jobs: int = -1,
    no_intervals: bool = False,
    force: bool = False,
    json: bool = False,
) -> None:
    """Fit and tune an ensemble on a table, compare it with ridge and least squares, and save it.

    Parquet larger than a quarter of the free memory is read in blocks of rows and never loaded.

    Parameters
    ----------
    data : path
        Table: CSV (also packed), Parquet or a folder of it, Arrow, Excel, or - for standard input. Without one, the
        embedded soil spectra are used.
    target : str
        Column to predict. Needed with a table, not with the embedded data.
    out : path
        Where to save the model (a .skops file). Without it the model is not kept.
    report : path
        Where to write a report (one self-contained .html or .htm file). Without it there is none.
    drop : str
        Column to leave out; may be repeated. All others are used.
    missing : str
        What to do with missing cells: "error" refuses them, "drop" leaves out their rows, "mean" fills them and adds a
        column that says where they were.
    dates : str
        Column of dates, which become days since 1970-01-01; may be repeated.
    ordinal : str
        Column of categories that have an order, by number or alphabet, or as given in "size=S<M<L"; may be repeated.
    id : str
        Column that only names the rows and is left out; may be repeated.
    weight : str
        Column that says how much each row counts, 0 or more. Without it all count alike.
    groups : str
        Column of groups; errors are then those of rows whose whole group is left out, and not of single rows.
    out_of_core : bool
        Read Parquet in blocks even if it would fit into memory. Errors then come from 3-fold cross-validation.
    members : int or "all"
        Number of least-squares fits to average, at least 2; all: their mean in closed form, and enough of those that
        have none.
    inclusion : str
        Which sampling schemes share the ensemble. "auto": those that left-out rows support, from dense signals to
        sparse ones; "uniform": all columns alike; "ridge": tuned ridge regression, as the mean of least-squares fits.
    seed : int
        Random seed for drawing the members, not negative.
    jobs : int
        Threads; -1 means all cores.
    no_intervals : bool
        Leave the training rows out of the model: 8 bytes for each row and column of the table, of which at most 64 MiB
        are kept. Standard errors are then gone, and for uniform members intervals have one width.
    force : bool
        Replace files that are there already and were not written by olsen.
    json : bool
        Print the summary as JSON instead of a table.
    """
    _check_numbers({"members": members, "seed": seed, "jobs": jobs})
    if data is not None and target is None:
        raise UsageError("--target is needed: the name of the column to predict.")
    wanted = [("--out", out, MODEL), ("--report", report, REPORT)]
    outputs.check({"table": data}, [Output(o, path, kind) for o, path, kind in wanted if path is not None], force)

    if out is not None:
        from_extra("skops.io", "cli", "--out")  # said before a long fit, not after it

    from .. import OLSEnsembleRegressorCV, _persistence
    from .._report.pages import render
    from .._report.summary import as_text

    number = math.inf if members == "all" else members
    model = OLSEnsembleRegressorCV(number, inclusion=inclusion, n_jobs=jobs, random_state=seed)
    how = _reading(target, drop, missing, dates, ordinal, id, weight, groups)
    summary, saved = _tuned(model, data, how, out_of_core, standard_errors=json or report is not None)
    if out is not None:
        kept = saved.for_file(rows=not no_intervals)
        atomically(out, lambda file: _persistence.write(file, kept))
    if report is not None:
        atomically(report, lambda file: file.write_text(render(summary), encoding="utf-8"))
    written = [str(path) for path in (out, report) if path is not None]
    terminal.show({**summary, "written": written} if json else None, as_text(summary) + _listed(written))


def _reading(
    target: str | None,
    drop: list[str] | None,
    missing: Literal["error", "drop", "mean"],
    dates: list[str] | None,
    ordinal: list[str] | None,
    ids: list[str] | None,
    weight: str | None = None,
    groups: str | None = None,
) -> Reading:
    """The options about a table, those of fit and of compare; the embedded data bring their own target."""
    from .fitting import Reading

    left_out, days, orders, named = (tuple(names or ()) for names in (drop, dates, ordinal, ids))
    return Reading(target or "", left_out, missing, days, orders, named, weight, groups)


def _tuned(
    model: OLSEnsembleRegressorCV, data: Path | None, how: Reading, out_of_core: bool, *, standard_errors: bool
) -> tuple[dict[str, Any], SavedModel]:
    from . import fitting

    large = fitting.open_large(data, out_of_core)
    if large is not None:
        return fitting.fit_blocks(model, large, how, _command())
    return fitting.fit_loaded(model, data, how, _command(), standard_errors)


def predict(
    model: Path,
    data: Path,
    /,
    *,
    out: Path | None = None,
    interval: float | None = None,
    id: list[str] | None = None,
    unknown: Literal["error", "ignore"] = "error",
    out_of_core: bool = False,
    force: bool = False,
    json: bool = False,
) -> None:
    """Predict the rows of a table with a saved model.

    Parquet larger than a quarter of the free memory is read, predicted and written in blocks of rows.

    Parameters
    ----------
    model : path
        Model saved by ``olsen fit --out``.
    data : path
        Table as for fit, with the columns of the training table; the target may be missing.
    out : path
        Where to write the predictions (.csv, .tsv or .parquet). Without one they are printed.
    interval : float
        Also give intervals that hold new observations with this probability, such as 0.9, as columns lower and upper,
        from the errors of left-out rows
        (out of core: from residuals of a sample of rows, scaled up to the cross-validated error).
    id : str
        Column that names the rows, which is written beside the predictions; may be repeated. Without it predictions
        come in the order of the rows, without names.
    unknown : str
        What to do with categories that the model has not seen: "error" refuses them, "ignore" takes them for none of
        those it knows, and says how many there were.
    out_of_core : bool
        Read Parquet in blocks even if it would fit into memory.
    force : bool
        Replace a file that is there already and does not hold predictions written by olsen.
    json : bool
        Print JSON instead of CSV.
    """
    if interval is not None and not 0 < interval < 1:
        raise UsageError(f"--interval {interval:g} must lie strictly between 0 and 1.")
    wanted = [] if out is None else [Output("--out", out, outputs.predictions_of(id or []))]
    outputs.check({"model": model, "table": data}, wanted, force)

    from .. import _persistence
    from . import fitting
    from .encoding import Encoding
    from .predictions import beside, collected, predicted_parts, with_limits, write_predictions

    saved = _persistence.read(model)
    with _persistence.damaged_model(model.name):
        encoding = Encoding.of_model(saved.model, saved.target, unknown)
        _ = encoding.columns, encoding.names
    if interval is not None and not saved.has_intervals:
        saved.half_width(interval)  # a model without errors is refused before the table is read
    large = fitting.open_large(data, out_of_core)
    table, names = (None, {}) if large is not None else _named_rows(encoding, data, id or [])
    if large is not None and id:
        raise UsageError("--id needs the table in memory, but it is read in blocks; join the predictions by row.")
    shown = json or out is not None  # a bar would be mixed with predictions on the screen
    with terminal.row_bar("finishing") if shown else nullcontext() as tell:
        predicted = predicted_parts(saved, encoding, model.name, table if large is None else large, interval, tell)
        parts: Iterable[Mapping[str, Array]] = with_limits(encoding.target, predicted)
        if names:
            parts = beside(names, parts)
        if json:
            parts = [collected(parts)]
            whole = {name: list(column) if name in names else column.tolist() for name, column in parts[0].items()}
        if out is not None:
            rows = atomically(out, lambda file: write_predictions(file, parts))
        elif not json:
            write_predictions(None, parts)
    if json:
        terminal.show(whole, "")
    if ignored := encoding.ignored:
        named = ", ".join(f"{quoted(name)} ({count})" for name, count in ignored.most_common())
        cells = f"{ignored.total()} cell{'s' * (ignored.total() != 1)}"
        terminal.note(f"categories that the model has not seen, taken for none of those it knows: {cells}, {named}.")
    if out is not None:
        print(f"{rows} predictions written to {escape_control(out)}", file=sys.stderr)


def _named_rows(encoding: Encoding, data: Path, ids: list[str]) -> tuple[Any, dict[str, list[str]]]:
    """A table in memory, and its columns that name the rows; notes about it are for the user."""
    from .tables import read_table, texts_of
    from .text_tables import SEPARATED

    # a column may name the rows and be one of the model's: then it is read as such
    needed = [column.name for column in encoding.columns]
    table, messages = read_table(data, verbatim=[name for name in ids if name not in needed])
    for message in messages:
        if not message.startswith(SEPARATED):  # another separator than in training is no news: columns have names
            terminal.note(message)
    try:
        names = texts_of(table, ids)
    except KeyError as error:
        raise UsageError(error.args[0]) from None
    if encoding.target in names:
        raise UsageError(f"--id {encoding.target} has the name that the predictions get; rename that column.")
    return table, names


def show(
    model: Path,
    /,
    *,
    json: bool = False,
) -> None:
    """Show what is in a model file: its origin, its data, its members, its error and its coefficients.

    Nothing in the file is run: it is checked as a whole before anything is built from it.

    Parameters
    ----------
    model : path
        Model saved by ``olsen fit --out``.
    json : bool
        Print JSON instead of text.
    """
    from . import show as showing

    found = showing.contents(model)
    terminal.show(found if json else None, showing.as_text(found))


def compare(
    data: Path | None = None,
    /,
    *,
    target: str | None = None,
    drop: list[str] | None = None,
    missing: Literal["error", "drop", "mean"] = "error",
    dates: list[str] | None = None,
    ordinal: list[str] | None = None,
    id: list[str] | None = None,
    groups: str | None = None,
    report: Path | None = None,
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    jobs: int = -1,
    force: bool = False,
    json: bool = False,
) -> None:
    """Compare the ensemble with ridge, lasso, elastic net, PLS and least squares on the same folds of a table.

    All models stand behind a standardisation of the columns, and tune inside the folds. The table must fit into memory.

    Parameters
    ----------
    data : path
        Table: CSV (also packed), Parquet or a folder of it, Arrow, Excel, or - for standard input. Without one, the
        embedded soil spectra are used.
    target : str
        Column to predict. Needed with a table, not with the embedded data.
    drop : str
        Column to leave out; may be repeated. All others are used.
    missing : str
        What to do with missing cells, as in fit: "error", "drop" or "mean".
    dates : str
        Column of dates, which become days since 1970-01-01; may be repeated.
    ordinal : str
        Column of categories that have an order, as in fit; may be repeated.
    id : str
        Column that only names the rows and is left out; may be repeated.
    groups : str
        Column of groups, which folds keep together.
    report : path
        Where to write a page with the table and a plot (one self-contained .html or .htm file). Without it there is
        none.
    folds : int
        Parts into which the rows are divided at random, at least 2.
    repeats : int
        How often they are divided anew, at least once.
    seed : int
        Random seed of the folds and of the members, not negative.
    jobs : int
        Threads; -1 means all cores.
    force : bool
        Replace a file that is there already and was not written by olsen.
    json : bool
        Print JSON instead of a table.
    """
    _check_numbers({"folds": folds, "repeats": repeats, "seed": seed, "jobs": jobs})
    if data is not None and target is None:
        raise UsageError("--target is needed: the name of the column to predict.")
    outputs.check({"table": data}, [] if report is None else [Output("--report", report, REPORT)], force)

    from .._report.pages import render_comparison
    from . import compare as comparing

    settings = {"folds": folds, "repeats": repeats, "seed": seed, "jobs": jobs}
    how = _reading(target, drop, missing, dates, ordinal, id, groups=groups)
    found = comparing.compare_table(data, how, **settings, command=_command())
    if report is not None:
        atomically(report, lambda file: file.write_text(render_comparison(found), encoding="utf-8"))
    written = [] if report is None else [str(report)]
    terminal.show({**found, "written": written} if json else None, comparing.as_text(found) + _listed(written))


def risk(
    *,
    gamma: float,
    sigma: float,
    alpha: float | None = None,
    eta: float = 1.0,
    k: float = math.inf,
    mu: float = 1.0,
    n: int | None = None,
    json: bool = False,
) -> None:
    """Expected risk of an ensemble, and the best one, for identity covariance and a signal of norm one.

    The risk is that of the limit of many rows and columns, beside that of ridge with its best penalty.

    Parameters
    ----------
    gamma : float
        Columns divided by rows, above 0.
    sigma : float
        Standard deviation of the noise, 0 or more; the signal has norm one.
    alpha : float
        Share of the columns in a member, from 0 to 1. Without it, the best one is used.
    eta : float
        Share of the rows in a member, above 0 and up to 1.
    k : float
        Number of members, 1 or more; inf for infinitely many.
    mu : float
        Factor that multiplies the average of the members.
    n : int
        Rows of the data. If given, the expected risk at this size is shown too; it is exact for eta = 1.
    json : bool
        Print JSON instead of a table.
    """
    from . import risks

    values = risks.calculate(gamma, sigma, alpha, eta, k, mu, n)
    terminal.show(values if json else None, risks.as_text(values, alpha is None))


def explore(
    *,
    out: Path | None = None,
    force: bool = False,
) -> None:
    """Try out risk, members and a data set in the browser: one page that needs no network.

    Parameters
    ----------
    out : path
        Where to write the page (one self-contained .html or .htm file). Without it, the page is opened in the browser.
    force : bool
        Replace a file that is there already and was not written by olsen.
    """
    outputs.check({}, [] if out is None else [Output("--out", out, PAGE)], force)

    from .. import explorer

    path = explorer.explore(out, open_browser=out is None)
    print(f"the explorer is in {escape_control(path)}")


def reproduce(
    *figures: str,
    scale: Literal["paper", "quick"] = "paper",
    out: Path = Path("figures"),
    seed: int = 2020,
    jobs: int = -1,
    format: Literal["csv", "parquet"] = "csv",
    force: bool = False,
    json: bool = False,
) -> None:
    """Make the paper's figures and five more: simulate, compare with theory, draw.

    A run that was interrupted continues where it stopped, with the same results.

    Parameters
    ----------
    figures : str
        Figures to make, figure1 to figure10. Without any, all of them.
    scale : str
        "paper" for the settings in the paper's captions, "quick" for fewer trials and points.
    out : path
        Folder for tables, manifests, PDF and PNG files.
    seed : int
        Seed of the simulation, not negative.
    jobs : int
        Threads; -1 means all cores.
    format : str
        Format of the tables.
    force : bool
        Replace files in the folder that have the names of figures and were not written by olsen.
    json : bool
        Print the reports as JSON.
    """
    _check_numbers({"seed": seed, "jobs": jobs})

    from ..figures import RECIPES
    from ..figures import reproduce as make

    unknown = [name for name in figures if name not in RECIPES]
    if unknown:
        raise UsageError(f"unknown figure {', '.join(unknown)}; choose from {', '.join(RECIPES)}.")
    outputs.check_figures(out, figures or RECIPES, f".{format}", force)
    with terminal.progress_bars() as progress:
        reports = make(
            figures or None, scale=scale, out=out, seed=seed, n_jobs=jobs, suffix=f".{format}", progress=progress,
            finished=None if json else lambda report: print(_figure_line(report), flush=True),
        )  # fmt: skip
    if json:
        terminal.show([{**report, "files": [str(f) for f in report["files"]]} for report in reports], "")


def _figure_line(report: dict[str, Any]) -> str:
    parts = [
        f"{entry['largest']:.1f} SE from {status} theory ({entry['points']} points)"
        for status, entry in report["deviation"].items()
    ]
    found = "at most " + ", ".join(parts) if parts else "no theory to compare with"
    return f"{report['name']}  {report['seconds']:6.1f} s  {report['title']}: {found}"


def _check_numbers(given: Mapping[str, Members]) -> None:
    """Raise for whole numbers out of range: members, seed, jobs."""
    for name, value in given.items():
        if not isinstance(value, int):
            continue
        if name == "members" and not 2 <= value <= MOST_MEMBERS:
            raise UsageError(f"--members {value}: an ensemble has at least 2 and at most {MOST_MEMBERS:,}.")
        if name == "folds" and value < 2:
            raise UsageError(f"--folds {value}: rows are left out in at least 2 folds.")
        if name == "repeats" and value < 1:
            raise UsageError(f"--repeats {value}: the folds are made at least once.")
        if name == "seed" and value < 0:
            raise UsageError(f"--seed {value}: a seed is not negative; give 0 or more.")
        if name == "jobs" and value == 0:
            raise UsageError("--jobs 0: there is no work without threads; give 1 or more, or -1 for all cores.")


def _command() -> str:
    return shlex.join(["olsen", *sys.argv[1:]])


def _listed(paths: list[str]) -> str:
    return f"\n\nwritten: {', '.join(map(escape_control, paths))}" if paths else ""
