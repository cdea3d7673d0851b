"""The command ``olsen``: whatever happens ends in a message and an exit code. What follows is the
end of its help.

Examples:

    olsen look wine.csv                    what a table holds, and the command that works
    olsen fit wine.csv --target quality --out wine.skops
    olsen predict wine.skops new.csv --interval 0.9 --out predictions.csv
    olsen fit --help                       what a command takes, with examples

Exit codes:

    0    done
    1    the work failed: a table or a model that cannot be used, a full disk
    2    what was typed is wrong; nothing was written
    130  stopped with Ctrl-C
    141  the program that read the output has ended, as in "| head"

Results go to standard output; progress, notes and errors to the error stream. An input is never
changed, and a file that is there already replaced only with --force.
"""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["main"]

INSTALL = "the command line needs {name}, which is not installed: pip install 'olsen[cli,plot]'"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Parameters
    ----------
    arguments : list of str, default=None
        Without them, those of the process, which Ctrl-C then ends at once with one line, imports
        included.

    Examples
    --------
    >>> from olsen.cli import main
    >>> main(["risk", "--gamma", "2", "--sigma", "1", "--alpha", "2"])
    2
    """
    if arguments is None:
        # next to nothing is imported before, nothing heavy before a command runs
        _end_when_interrupted()
    from .terminal import UsageError

    tokens = sys.argv[1:] if arguments is None else arguments
    tokens = [
        "/dev/stdin" if token == "-" else token for token in tokens
    ]  # a lone hyphen is no option
    try:
        from cyclopts import CycloptsError

        from .commands import app

        try:
            app()(tokens, exit_on_error=False, print_error=False, result_action="return_value")
        except CycloptsError as error:
            return _fail(error, 2)
        sys.stdout.flush()
        return 0
    except UsageError as error:
        return _fail(error, 2)
    except ModuleNotFoundError as error:
        return _fail(INSTALL.format(name=error.name), 1)
    except BrokenPipeError:  # the program that reads our output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # 128 plus SIGPIPE, as in shells
    except KeyboardInterrupt:
        return _fail("stopped", 130)  # 128 plus SIGINT
    except (ImportError, ValueError, OSError, MemoryError, OverflowError) as error:
        from .remedies import problem_lines

        return _fail(
            error, 1, problem_lines(error, sys.argv[1:] if arguments is None else arguments)
        )


def _fail(error: BaseException | str, code: int, lines: list[str] | None = None) -> int:
    from .._report.formatting import shortened

    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if lines:
        print("\n".join(lines), file=sys.stderr)
        return code
    print(
        f"olsen: {shortened(' '.join(text.split()), 2000)}", file=sys.stderr
    )  # other libraries quote whole files
    return code


def _end_when_interrupted() -> None:
    """Have Ctrl-C end the process where it stands; an exception would be lost, or shown, by some
    libraries' imports.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # somebody wants it otherwise, such as nohup
    try:
        signal.signal(signal.SIGINT, _end)
    except ValueError:  # called in a thread, to which Ctrl-C does not come
        return


def _end(number: int, frame: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        files = sys.modules.get("olsen._execution.files")
        if files is not None and hasattr(
            files, "remove_unfinished"
        ):  # not while it is being imported
            files.remove_unfinished()
        if os.isatty(2):
            os.write(2, b"\x1b[?25h\n")  # spinners and bars hide the cursor
        os.write(2, b"olsen: stopped\n")
    finally:
        os._exit(130)
