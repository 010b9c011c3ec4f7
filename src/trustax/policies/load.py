"""``load``: from a folder or a file to an architecture and its parameters."""

import logging
from pathlib import Path
from typing import Any, NamedTuple

from trustax.policies.assemble import assemble, check_names
from trustax.policies.config import ArchitectureConfig
from trustax.policies.gguf_io import export_tokenizer, gguf_name, read_gguf
from trustax.policies.hf_config import read_hf_config
from trustax.policies.safetensors_io import hf_name, read_safetensors

log = logging.getLogger(__name__)


class LoadedPolicy(NamedTuple):
    """What a folder of weights holds. ``ignored`` names the tensors in it that the architecture rightly leaves out."""

    config: ArchitectureConfig
    params: dict[str, Any]
    tokenizer_folder: Path | None
    ignored: tuple[str, ...] = ()


def load(source: str | Path) -> LoadedPolicy:
    """Read a Hugging Face folder (``config.json`` and ``*.safetensors``), a ``.gguf`` file, or a folder with one.

    Parameters become float32. The tokenizer inside a GGUF file is unpacked beside it once.

    Raises:
        ValueError: saying everything that is missing, unused, mis-shaped or not implemented.
    """
    path = Path(source)
    if (path / "config.json").is_file():
        return _load_hf(path)
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder; expected config.json with *.safetensors, or a .gguf file")
    if path.is_file() and path.suffix == ".gguf":
        return _load_gguf(path)
    ggufs = sorted(path.glob("*.gguf")) if path.is_dir() else []
    if len(ggufs) == 1:
        return _load_gguf(ggufs[0])
    if len(ggufs) > 1:
        raise ValueError(f"{path}: holds {len(ggufs)} GGUF files, name one: " + ", ".join(file.name for file in ggufs))
    raise ValueError(f"{path}: neither config.json nor a .gguf file found")


def _load_hf(folder: Path) -> LoadedPolicy:
    config = read_hf_config(folder / "config.json")
    stored = read_safetensors(folder)
    ignored = check_names(config, stored, hf_name, str(folder))
    _report(folder, ignored)
    tokenizer = folder if (folder / "tokenizer.json").exists() else None
    return LoadedPolicy(config, assemble(config, stored, hf_name), tokenizer, ignored)


def _load_gguf(path: Path) -> LoadedPolicy:
    config, stored = read_gguf(path)
    ignored = check_names(config, stored, gguf_name, str(path))
    _report(path, ignored)
    return LoadedPolicy(config, assemble(config, stored, gguf_name), _gguf_tokenizer(path), ignored)


def _gguf_tokenizer(path: Path) -> Path | None:
    if not (path.parent / "tokenizer.json").exists():
        try:
            export_tokenizer(path, path.parent)
        except OSError as error:
            log.warning("%s: cannot unpack its tokenizer beside it (%s); the policy comes without one", path, error)
            return None
    return path.parent


def _report(path: Path, ignored: tuple[str, ...]) -> None:
    if ignored:
        log.info("%s: ignored %s", path, ", ".join(ignored))
