"""The commands: look, fit, predict, show, compare, risk, explore, reproduce.

A command checks its numbers and its outputs first, then imports the modules it needs and does its
work. Results go to standard output, as a table or with ``--json``. The docstrings are the text of
``--help``.
"""

from __future__ import annotations

import inspect
import math
import shlex
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter, convert

from .. import __version__
from .._execution.files import atomically
from .._report.formatting import escape_control
from . import __doc__ as PACKAGE
from . import outputs, terminal
from .terminal import UsageError

__all__ = [
    "TableOptions",
    "app",
    "compare",
    "explore",
    "fit",
    "look",
    "predict",
    "reproduce",
    "risk",
    "show",
]


def _within(minimum: int, maximum: int = 10**9) -> Parameter:
    def check(kind: Any, value: int | str) -> None:
        if isinstance(value, int) and not minimum <= value <= maximum:
            raise ValueError(f"Give {minimum} or more, up to {maximum:,}.")

    return Parameter(validator=check)


def _not_zero(kind: Any, value: int) -> None:
    if value == 0:
        raise ValueError("There is no work without threads: give 1 or more, or -1 for all cores.")


Count = int | Literal["all"]
Members = Annotated[Count, _within(2)]
Seed = Annotated[int, _within(0, 2**63)]
# several values may follow an option: --drop a b
Names = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]
Jobs = Annotated[int, Parameter(validator=_not_zero)]


@Parameter(name="*")
@dataclass(frozen=True)
class TableOptions:
    """Options about the columns of a table.

    Parameters
    ----------
    target : str
        Column to predict. Needed with a table, not with the embedded data.
    drop : str
        Column to leave out; may be repeated. All others are used.
    missing : str
        What to do with missing cells: "error" refuses the table, "drop" leaves out the rows, "mean"
        fills the cells with the mean and adds a column that marks missing cells; rows without a
        target are left out.
    dates : str
        Column of dates, which become days since 1970-01-01, if need be with their format, as in
        "day=%d/%m/%Y"; may be repeated. Dates that cannot be misread need not be named.
    ordinal : str
        Column of categories that have an order, by number or alphabet, or as given in "size=S<M<L";
        may be repeated.
    na : str
        Text that stands for a missing value, besides NA and the like; may be repeated.
    decimal : str
        Decimal mark of numbers that may be read in two ways, such as 1,234: "." or ",".
    id : str
        Column that only names the rows and is left out; may be repeated. It is written beside the
        predictions.
    weight : str
        Column of row weights, 0 or more. Without it all rows have the same weight.
    groups : str
        Column of groups; errors are then estimated with whole groups held out, and not single rows.
    """

    target: str = ""
    drop: Names = ()
    missing: Literal["error", "drop", "mean"] = "error"
    dates: Names = ()
    ordinal: Names = ()
    na: Names = ()
    decimal: Literal[".", ","] | None = None
    id: Names = ()
    weight: str | None = None
    groups: str | None = None


def app() -> App:
    """Build the cyclopts application of all commands."""
    options = Parameter(
        negative=(), converter=_converted, show_default=_shown_default
    )  # no --no-json
    application = App(
        name="olsen",
        help="Ensembles of ordinary least squares on random submatrices of the data.",
        help_epilogue=(PACKAGE or "").partition("\n\n")[2],
        version=__version__,
        help_format="markdown",
        default_parameter=options,
        suppress_keyboard_interrupt=False,
    )
    commands: list[Callable[..., None]] = [
        look,
        fit,
        predict,
        show,
        compare,
        risk,
        explore,
        reproduce,
    ]
    for position, command in enumerate(commands):
        examples = (inspect.getdoc(command) or "").partition("Examples\n--------\n")[2]
        epilogue = "Examples:\n\n" + textwrap.indent(examples, "    ")
        application.command(command, help_epilogue=epilogue, sort_key=position)
    application.register_install_completion_command(
        help=(
            "Let the shell complete commands, options and file names with the tab key (bash, zsh,"
            " fish)."
        ),
        group="Setup",
        help_epilogue=(
            "Examples:\n\n    olsen --install-completion\n    olsen --install-completion --shell"
            " bash"
        ),
    )
    return application


def _converted(kind: Any, tokens: Any) -> Any:
    """Convert an argument: integers are parsed strictly, all other types by cyclopts."""
    if kind not in (int, Count) or (kind == Count and tokens[0].value == "all"):
        return convert(kind, tokens)
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value} is not a whole number.") from None


def _shown_default(value: object) -> str | None:
    """Format a default for the help; empty defaults and switches that are off are not shown."""
    return None if value in (None, "", ()) or value is False else str(value)


def fit(
    data: Path | None = None,
    /,
    *,
    table: TableOptions = TableOptions(),  # noqa: B008
    out: Path | None = None,
    report: Path | None = None,
    compare: bool = False,
    out_of_core: bool = False,
    members: Members = "all",
    model: Literal["adaptive", "ensemble"] = "adaptive",
    seed: Seed = 0,
    jobs: Jobs = -1,
    no_intervals: bool = False,
    force: bool = False,
    json: bool = False,
) -> None:
    """Fit and tune an ensemble on a table, estimate its error, and save it.

    Parquet larger than a quarter of the free memory is read in blocks of rows and never loaded.

    Parameters
    ----------
    data : path
        Table: CSV (also packed), Parquet or a folder of it, Excel, or - for standard input. Without
        one, the embedded soil spectra are used.
    out : path
        Where to save the model (a .skops file). Without it the model is not saved.
    report : path
        Where to write a report (one self-contained .html or .htm file). Without it there is none.
    compare : bool
        Compare the error with ridge, lasso, elastic net, PLS, least squares and the mean of the
        target on the same five folds, as olsen compare does. It takes several times as long.
    out_of_core : bool
        Read Parquet in blocks even if it would fit into memory.
    members : int or "all"
        Number of least-squares fits to average, at least 2. "all": the closed-form limit of
        infinitely many members; where there is no closed form, enough members that more would not
        improve the fit.
    model : str
        "adaptive": several sampling schemes, from dense signals to sparse ones, with weights found
        by cross-validation. "ensemble": the ensemble of the paper, least-squares fits on random
        columns, with its size tuned.
    seed : int
        Random seed for drawing the members, not negative.
    jobs : int
        Threads; -1 means all cores.
    no_intervals : bool
        Save the model without the training rows, which take 8 bytes for each row and column of the
        table and are saved up to 64 MiB. The model then has no standard errors, and with --model
        ensemble no intervals.
    force : bool
        Replace existing files.
    json : bool
        Print the summary as JSON instead of a table.

    Examples
    --------
    olsen fit                                   the embedded data
    olsen fit wine.csv --target quality         tune, fit, print
    olsen fit wine.csv --target quality --out wine.skops --report wine.html
    olsen fit wine.csv --target quality --id id --missing mean --compare
    olsen fit big.parquet --target price --out price.skops    larger than memory
    """
    outputs.check(
        {"table": data}, {"--out": (out, "a model"), "--report": (report, "a report")}, force
    )
    from .. import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV, _persistence
    from .._report.pages import render
    from .._report.summary import as_text
    from . import table_models

    if out is not None:
        _persistence.load_skops()  # a missing package is reported before a long fit
    estimator: Any
    if model == "adaptive":
        n_estimators = math.inf if members == "all" else members
        estimator = AdaptiveOLSEnsembleRegressor(
            n_estimators=n_estimators, n_jobs=jobs, random_state=seed
        )
    else:
        estimator = OLSEnsembleRegressorCV(
            "auto" if members == "all" else members, n_jobs=jobs, random_state=seed
        )
    summary, pipeline = table_models.fit(
        estimator,
        data,
        table,
        out_of_core=out_of_core,
        standard_errors=json or report is not None,
        compared=compare,
        command=_command(),
    )
    if out is not None:
        _persistence.write(out, pipeline, rows=not no_intervals)
    if report is not None:
        atomically(report, lambda file: file.write_text(render(summary), encoding="utf-8"))
    hint = (
        ""
        if compare or summary["data"]["out_of_core"]
        else "\n\nOther models on the same folds: --compare"
    )
    _show_with_files(summary, as_text(summary) + hint, json=json, paths=[out, report])


def _command() -> str:
    return shlex.join(["olsen", *sys.argv[1:]])


def _show_with_files(
    results: dict[str, Any], text: str, *, json: bool, paths: list[Path | None]
) -> None:
    """Print results as JSON or text, with the files that were written."""
    written = [str(path) for path in paths if path is not None]
    file_list = f"\n\nwritten: {', '.join(map(escape_control, written))}" if written else ""
    terminal.show({**results, "written": written} if json else None, text + file_list)


def look(
    data: Path,
    /,
    *,
    table: TableOptions = TableOptions(),  # noqa: B008
    json: bool = False,
) -> None:
    """Look at a table: what its columns are, what fit would do with them, and the command that
    works.

    Nothing is fitted or written. Options about columns are those of fit.

    Parameters
    ----------
    data : path
        Table, as for fit. Of Parquet larger than a quarter of the free memory, the first rows are
        read.
    json : bool
        Print JSON instead of a table.

    Examples
    --------
    olsen look wine.csv
    olsen look wine.csv --target quality
    """
    from . import look as looking

    contents = looking.contents(data, table)
    terminal.show(contents if json else None, looking.as_text(contents))


def predict(
    model: Path,
    data: Path,
    /,
    *,
    out: Path | None = None,
    interval: float | None = None,
    id: Names = (),
    unknown: Literal["error", "ignore"] = "error",
    escape_formulas: bool = False,
    out_of_core: bool = False,
    force: bool = False,
    json: bool = False,
) -> None:
    """Predict the rows of a table with a saved model.

    Parquet larger than a quarter of the free memory is read, predicted and written in blocks of
    rows. The column far_row is True for rows more than twice as far out as any training row (by leverage);
    models that were saved without training rows, or fitted in blocks, do not have it.

    Parameters
    ----------
    model : path
        Model saved by ``olsen fit --out``.
    data : path
        Table as for fit, with the columns of the training table; the target may be missing.
    out : path
        Where to write the predictions (.csv, .tsv or .parquet). Without one they are printed.
    interval : float
        Also give intervals that contain new observations with this probability, such as 0.9, as
        columns lower and upper, from the errors of held-out rows.
    id : str
        Column that names the rows, which is written beside the predictions; may be repeated. By
        default that of fit, if the table has it.
    unknown : str
        What to do with categories that the model has not seen: "error" refuses the table, "ignore"
        treats such a cell as none of the known categories, and reports the number of cells.
    escape_formulas : bool
        Put an apostrophe before names and cells of text that begin with =, +, -, @, a tab or a line
        end and are not numbers, in CSV and TSV: spreadsheet programs would run such cells as
        formulas.
    out_of_core : bool
        Read Parquet in blocks even if it would fit into memory.
    force : bool
        Replace an existing file.
    json : bool
        Print JSON instead of CSV.

    Examples
    --------
    olsen predict wine.skops new.csv                 to the screen
    olsen predict wine.skops new.csv --interval 0.9 --out predictions.csv
    olsen predict wine.skops new.csv --id bottle --out predictions.parquet
    zcat new.csv.gz | olsen predict wine.skops - > predictions.csv
    """
    if interval is not None and not 0 < interval < 1:
        percent = f" {interval:g} % is --interval {interval / 100:g}." if 1 < interval < 100 else ""
        raise UsageError(f"--interval {interval:g} must lie strictly between 0 and 1.{percent}")
    outputs.check({"model": model, "table": data}, {"--out": (out, "predictions")}, force)

    from .. import _persistence
    from . import table_models
    from .encoding import Encoding

    notes: list[str] = []
    with terminal.warnings_as_notes(notes):
        pipeline = _persistence.read(model)["model"]
    with _persistence.damaged_model(model.name):
        encoding = Encoding.of_model(pipeline, unknown)
    table, row_names = table_models.open_rows(data, encoding, list(id), out_of_core)
    # a progress bar would be mixed with predictions on the screen
    with (
        terminal.progress(unit="rows", visible=out is not None or json) as tell,
        terminal.warnings_as_notes(notes),
    ):
        parts = table_models.predictions(
            pipeline[-1],
            encoding,
            table,
            model_name=model.name,
            row_names=row_names,
            coverage=interval,
            notes=notes,
            tell=tell,
        )
        write = partial(
            outputs.write_predictions,
            parts=parts,
            escape=escape_formulas,
            decimals=table_models.prediction_decimals(pipeline[-1]),
        )
        if out is not None:
            n_rows = atomically(out, write)
        elif json:
            columns: dict[str, list[Any]] = {}
            for part in parts:
                for name, values in part.items():
                    columns.setdefault(name, []).extend(values)
            terminal.show(columns, "")
        else:
            write(None)
    notes += encoding.cell_notes()
    is_text = not json if out is None else out.suffix.lower() != ".parquet"
    if is_text and not escape_formulas:
        notes += outputs.formula_note(row_names)
    for text in notes:
        terminal.note(text)
    if out is not None:
        print(f"{n_rows} predictions written to {escape_control(out)}", file=sys.stderr)


def show(model: Path, /, *, json: bool = False) -> None:
    """Show what is in a model file: its origin, its data, its members, its error and its
    coefficients.

    Nothing in the file is run: the whole file is checked before any object is built from it.

    Parameters
    ----------
    model : path
        Model saved by ``olsen fit --out``.
    json : bool
        Print JSON instead of text.

    Examples
    --------
    olsen show wine.skops
    olsen show wine.skops --json
    """
    from . import show as showing

    contents = showing.contents(model)
    terminal.show(contents if json else None, showing.as_text(contents))


def compare(
    data: Path | None = None,
    /,
    *,
    table: TableOptions = TableOptions(),  # noqa: B008
    report: Path | None = None,
    folds: Annotated[int, _within(2)] = 5,
    repeats: Annotated[int, _within(1)] = 1,
    seed: Seed = 0,
    jobs: Jobs = -1,
    force: bool = False,
    json: bool = False,
) -> None:
    """Compare the ensemble with other linear models and the mean of the target, on the same folds
    of a table.

    All models are fitted on standardised columns and tuned inside the folds. The table must fit
    into memory.

    Parameters
    ----------
    data : path
        Table: CSV (also packed), Parquet or a folder of it, Excel, or - for standard input. Without
        one, the embedded soil spectra are used.
    report : path
        Where to write a page with the table and a plot (one self-contained .html or .htm file).
        Without it there is none.
    folds : int
        Number of parts into which the rows are divided at random, at least 2.
    repeats : int
        Number of random divisions into folds, at least 1.
    seed : int
        Random seed of the folds and of the members, not negative.
    jobs : int
        Threads; -1 means all cores.
    force : bool
        Replace an existing file.
    json : bool
        Print JSON instead of a table.

    Examples
    --------
    olsen compare                               the embedded data
    olsen compare wine.csv --target quality
    olsen compare wine.csv --target quality --repeats 4 --report compared.html
    """
    outputs.check({"table": data}, {"--report": (report, "a report")}, force)

    from .._report.pages import render_comparison
    from . import table_models
    from .compare import as_text

    comparison = table_models.compare(
        data, table, _command(), folds=folds, repeats=repeats, seed=seed, jobs=jobs
    )
    if report is not None:
        atomically(
            report, lambda file: file.write_text(render_comparison(comparison), encoding="utf-8")
        )
    _show_with_files(comparison, as_text(comparison), json=json, paths=[report])


def risk(
    *,
    sigma: float,
    gamma: float | None = None,
    alpha: float | None = None,
    eta: float = 1.0,
    k: float = math.inf,
    mu: float = 1.0,
    n: Annotated[int | None, _within(1, 2**53)] = None,
    p: Annotated[int | None, _within(1, 2**53)] = None,
    json: bool = False,
) -> None:
    """Expected risk of an ensemble, and the best one, for identity covariance and a signal of norm
    one.

    The risk is the limit for many rows and columns; it is shown with the risk of ridge at its best
    penalty.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise, 0 or more; the signal has norm one.
    gamma : float
        Columns divided by rows, above 0. Instead of it, give --n and --p.
    alpha : float
        Fraction of the columns in a member, from 0 to 1. Without it, the best value is used.
    eta : float
        Fraction of the rows in a member, above 0 and up to 1.
    k : float
        Number of members, 1 or more; inf for infinitely many.
    mu : float
        Factor that multiplies the average of the members.
    n : int
        Rows of the data. If given, the expected risk at this size is shown too; it is exact for eta
        = 1.
    p : int
        Columns of the data, with --n.
    json : bool
        Print JSON instead of a table.

    Examples
    --------
    olsen risk --gamma 2 --sigma 1                     the best alpha
    olsen risk --gamma 2 --sigma 1 --alpha 0.2 --k 100
    olsen risk --n 200 --p 400 --sigma 1 --k 100       exact at 200 x 400
    """
    from . import risks

    values = risks.calculate(gamma=gamma, sigma=sigma, alpha=alpha, eta=eta, k=k, mu=mu, n=n, p=p)
    terminal.show(values if json else None, risks.as_text(values, alpha is None))


def explore(*, out: Path | None = None, force: bool = False) -> None:
    """Try out risk, members and a data set in the browser: one page that needs no network.

    Parameters
    ----------
    out : path
        Where to write the page (one self-contained .html or .htm file). Without it, the page is
        opened in the browser.
    force : bool
        Replace an existing file.

    Examples
    --------
    olsen explore                               opens the browser
    olsen explore --out explorer.html           to be passed on
    """
    outputs.check({}, {"--out": (out, "a report")}, force)

    from .. import explorer

    path = explorer.explore(out, open_browser=out is None)
    print(f"the explorer is in {escape_control(path)}")


def reproduce(
    *figures: str,
    scale: Literal["paper", "quick"] = "paper",
    out: Path = Path("figures"),
    seed: Seed = 2020,
    jobs: Jobs = -1,
    force: bool = False,
    json: bool = False,
) -> None:
    """Make the paper's figures and seven more: simulate, compare with theory, draw.

    A run that was interrupted continues where it stopped, with the same results.

    Parameters
    ----------
    figures : str
        Figures to make, figure1 to figure11; by default all figures.
    scale : str
        "paper" for the settings in the paper's captions, "quick" for fewer trials and points.
    out : path
        Folder for tables, manifests, captions, PDF and PNG files.
    seed : int
        Seed of the simulation, not negative.
    jobs : int
        Threads; -1 means all cores.
    force : bool
        Replace existing files of figures in the folder; finished trials are reused.
    json : bool
        Print the reports as JSON.

    Examples
    --------
    olsen reproduce --scale quick               all figures, fewer trials
    olsen reproduce figure2 figure3 --out paper
    olsen reproduce figure2 --out paper         go on after it was stopped
    """
    from ..figures import RECIPES
    from ..figures import reproduce as make

    if unknown := [name for name in figures if name not in RECIPES]:
        raise UsageError(f"unknown figure {', '.join(unknown)}; choose from {', '.join(RECIPES)}.")
    outputs.check_figures(out, figures or RECIPES, force)
    with terminal.progress(unit="trials") as progress:
        reports = make(
            figures or None,
            scale=scale,
            out=out,
            rng=seed,
            n_jobs=jobs,
            progress=progress,
            finished=None if json else lambda report: print(_figure_line(report), flush=True),
        )
    if json:
        terminal.show(
            [{**report, "files": [str(f) for f in report["files"]]} for report in reports], ""
        )


def _figure_line(report: dict[str, Any]) -> str:
    deviations = [
        f"{entry['largest']:.1f} SE from {status} theory ({entry['points']} points)"
        for status, entry in report["deviation"].items()
    ]
    verdict = "at most " + ", ".join(deviations) if deviations else "no theory to compare with"
    return f"{report['name']}  {report['seconds']:6.1f} s  {report['title']}: {verdict}"
