"""Rollouts of other stacks: a file of completions, read row by row, checked, and padded into ``TokenStats``.

A row is one completion: token ids, log-probs of the sampler and of the trainer, an advantage. What is missing is
refused by name, with its line and token; nothing is ever filled in. Where nobody but the sampler has seen a completion
yet, a row has its prompt and its reward instead (``LoggedReader``).
"""

from trustax.rollouts.importers.batches import Batch, batches
from trustax.rollouts.importers.layouts import LAYOUTS
from trustax.rollouts.importers.logged import Logged
from trustax.rollouts.importers.reader import FileReader, LoggedReader
from trustax.rollouts.importers.row import OPTIONAL, Row, Top

__all__ = ["LAYOUTS", "OPTIONAL", "Batch", "FileReader", "Logged", "LoggedReader", "Row", "Top", "batches"]
