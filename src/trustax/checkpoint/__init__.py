"""Complete checkpoints of a whole run; the one package that knows orbax."""

from trustax.checkpoint.checkpointer import FORMAT_VERSION, Checkpointer

__all__ = ["FORMAT_VERSION", "Checkpointer"]
