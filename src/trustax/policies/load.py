"""``load``: from a folder or a file to an architecture and its parameters."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from trustax.policies.assemble import assemble, check_names
from trustax.policies.config import ArchitectureConfig
from trustax.policies.gguf_io import export_tokenizer, gguf_name, read_gguf
from trustax.policies.hf_config import read_hf_config
from trustax.policies.hf_names import Tensor, tensors
from trustax.policies.safetensors_io import Contents, hf_name, read_headers

log = logging.getLogger(__name__)


class LoadedPolicy(NamedTuple):
    """What a folder of weights holds. ``ignored`` names the tensors in it that the architecture rightly leaves out."""

    config: ArchitectureConfig
    params: dict[str, Any]
    tokenizer_folder: Path | None
    ignored: tuple[str, ...] = ()


def load(source: str | Path, *, shardings: Callable[[ArchitectureConfig], Any] | None = None) -> LoadedPolicy:
    """Read a Hugging Face folder (``config.json`` and ``*.safetensors``), a ``.gguf`` file, or a folder with one.

    Parameters become float32. The tokenizer inside a GGUF file is unpacked beside it once.

    Args:
        source: The folder or the file.
        shardings: From the architecture to a tree of shardings, one a parameter: each is read by slices straight to
            where it lives. All on one device if left out.

    Raises:
        ValueError: saying everything that is missing, unused, mis-shaped or not implemented.
    """
    path = find(source)
    if path.is_dir():
        config, contents = read_hf_config(path / "config.json"), read_headers(path)
        name_of, tokenizer = hf_name, path if (path / "tokenizer.json").exists() else None
    else:
        config, stored = read_gguf(path)
        contents, name_of, tokenizer = Contents(stored, [], frozenset()), gguf_name, None
    ignored = _check(config, contents, name_of, path)
    if path.is_file():
        tokenizer = _gguf_tokenizer(path)
    placed = None if shardings is None else shardings(config)
    params = assemble(config, contents.tensors, name_of, shardings=placed)
    return LoadedPolicy(config, params, tokenizer, ignored)


def find(source: str | Path) -> Path:
    """The Hugging Face folder, or the GGUF file, that ``source`` stands for."""
    path = Path(source)
    if (path / "config.json").is_file():
        return path
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder; expected config.json with *.safetensors, or a .gguf file")
    if path.is_file() and path.suffix == ".gguf":
        return path
    ggufs = sorted(path.glob("*.gguf")) if path.is_dir() else []
    if len(ggufs) == 1:
        return ggufs[0]
    if len(ggufs) > 1:
        raise ValueError(f"{path}: holds {len(ggufs)} GGUF files, name one: " + ", ".join(file.name for file in ggufs))
    raise ValueError(f"{path}: neither config.json nor a .gguf file found")


def _check(
    config: ArchitectureConfig, contents: Contents, name_of: Callable[[Tensor], str | None], path: Path
) -> tuple[str, ...]:
    """Refuse a checkpoint with everything that is wrong with it; the names of what is rightly ignored."""
    found, ignored = check_names(config, contents.tensors, name_of, tensors(config))
    problems = contents.all_problems(found)
    if problems:
        raise ValueError(
            f"{path}: the tensors do not fit the architecture in its config, or are not whole "
            f"({len(problems)} problem{'s' if len(problems) > 1 else ''}):\n  " + "\n  ".join(problems)
        )
    if ignored:
        log.info("%s: ignored %s", path, ", ".join(ignored))
    return ignored


def _gguf_tokenizer(path: Path) -> Path | None:
    if not (path.parent / "tokenizer.json").exists():
        try:
            export_tokenizer(path, path.parent)
        except OSError as error:
            log.warning("%s: cannot unpack its tokenizer beside it (%s); the policy comes without one", path, error)
            return None
    return path.parent
