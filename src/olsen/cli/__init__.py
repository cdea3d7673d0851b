"""The command ``olsen``."""

from .commands import UsageError, fit, main, predict, reproduce, risk

__all__ = ["UsageError", "fit", "main", "predict", "reproduce", "risk"]
