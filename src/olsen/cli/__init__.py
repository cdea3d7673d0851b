"""The command ``olsen``. Only what starts it is imported here; a command is loaded when it is called or asked for."""

from .program import main

TYPE_CHECKING = False  # the module typing takes as long to import as all the rest here
if TYPE_CHECKING:
    from .commands import fit, predict, reproduce, risk
    from .terminal import UsageError

__all__ = ["UsageError", "fit", "main", "predict", "reproduce", "risk"]


def __getattr__(name: str) -> object:
    if name not in ("UsageError", "commands", "fit", "predict", "reproduce", "risk"):
        raise AttributeError(f"module 'olsen.cli' has no attribute {name!r}")
    import importlib

    commands = importlib.import_module("olsen.cli.commands")
    return commands if name == "commands" else getattr(commands, name)
