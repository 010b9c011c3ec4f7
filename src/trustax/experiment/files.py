"""Files that are whole or absent, and errors that name them."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from trustax.errors import RunError


def write_atomically(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` in one step: a reader, or a crash, sees the old file or the new one."""
    with naming(path):
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn an operating system's refusal to write (disk full, no permission) into one line that names the file."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; free or choose another place and run again"
        ) from error
