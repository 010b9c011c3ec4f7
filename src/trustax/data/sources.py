"""From a config to a source: prepare the files once, then read them by index."""

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.metadata
import io
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from trustax.data import jsonl, published
from trustax.data.config import (
    ArithmeticConfig,
    DataConfig,
    JsonlConfig,
    MixtureConfig,
    PlainSourceConfig,
    PublishedConfig,
    ReasoningGymConfig,
    Split,
)
from trustax.data.mixture import mixture
from trustax.data.types import Example, ListSource, Source

logger = logging.getLogger(__name__)

PreparedConfig = ArithmeticConfig | ReasoningGymConfig | PublishedConfig


@dataclasses.dataclass(frozen=True)
class TfdsSource:
    """A prepared split, read by index; TFDS gives text back as bytes."""

    name: str
    records: Sequence[Any]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int, /) -> Example:
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} has {len(self)} examples, asked for number {index}")
        record = self.records[index]
        text = {key: record[key].decode("utf-8") for key in ("prompt", "answer", "metadata")}
        return Example(index=int(record["index"]), **text)


def load(config: DataConfig, split: Split) -> Source:
    """The examples of one split, prepared under ``config.folder`` if they aren't there yet."""
    source = config.source if split == "train" or config.test_source is None else config.test_source
    if isinstance(source, MixtureConfig):
        return mixture([_load(one, config.folder, split) for one in source.sources], source.weights)
    return _load(source, config.folder, split)


def _load(source: PlainSourceConfig, folder: str, split: Split) -> Source:
    if isinstance(source, JsonlConfig):
        splits = jsonl.read_splits(source)
        if split not in splits:
            raise ValueError(f"{source.path} has no {split} split: set test_path or test_size")
        return ListSource(f"{Path(source.path).name}:{split}", splits[split])
    prepared = prepare(source, folder)
    builder = _import_tfds().builder_from_directory(str(prepared))
    if split not in builder.info.splits:
        there = ", ".join(builder.info.splits)
        raise ValueError(
            f"{_title(source)} has no {split} split, only {there}; set data.test_source for held-out questions"
        )
    return TfdsSource(f"{prepared.name}:{split}", builder.as_data_source(split=split))


def prepare(source: PreparedConfig, folder: str | Path) -> Path:
    """Write a data set's files if they aren't there, and say where they are.

    The folder's name carries a hash of every setting and of the versions of what generates the records, so that
    changed settings never read stale files. Files are written beside it and renamed into place when complete: a folder
    with the final name is whole, whoever was interrupted, and two processes may prepare it at the same time.
    """
    builders = _import_builders()
    builder_class = {
        ArithmeticConfig: builders.Arithmetic,
        ReasoningGymConfig: builders.ReasoningGym,
        PublishedConfig: builders.Published,
    }[type(source)]
    final = Path(folder) / f"{_title(source)}-{fingerprint(source, str(builder_class.VERSION))}"
    if final.is_dir():
        return final
    logger.info("preparing %s", final)
    final.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    try:
        builder = builder_class(source=source, data_dir=str(scratch))
        with contextlib.redirect_stdout(io.StringIO()):  # it prints of downloads, and names the scratch folder
            builder.download_and_prepare()
        try:
            os.rename(builder.data_dir, final)
        except OSError:
            if not final.is_dir():  # otherwise another process was faster, with the same records
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return final


def fingerprint(source: PreparedConfig, builder_version: str) -> str:
    """A short hash of everything that decides what the records are."""
    generator: Any = importlib.metadata.version("reasoning-gym") if isinstance(source, ReasoningGymConfig) else ""
    settings = dataclasses.asdict(source)
    if isinstance(source, PublishedConfig):  # what is in the files, wherever they are
        files = published.find_files(source.name, settings.pop("path"))
        generator = {split: hashlib.sha256(path.read_bytes()).hexdigest() for split, path in files.items()}
    if isinstance(source, ReasoningGymConfig) and not source.levels:
        del settings["levels"]  # the key of sets that were prepared before there were any
    record = {"source": settings, "builder": builder_version, "generator": generator}
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:12]


def _title(source: PreparedConfig) -> str:
    if isinstance(source, ArithmeticConfig):
        return f"arithmetic-{source.operation}-{source.digits}"
    return f"reasoning_gym-{source.task}" if isinstance(source, ReasoningGymConfig) else source.name


def _import_tfds() -> ModuleType:
    try:
        return importlib.import_module("tensorflow_datasets")
    except ImportError as error:
        raise ImportError(
            "prepared data sets need TFDS with array_record: pip install tensorflow-datasets array-record grain; "
            "or use a JSONL file, which needs neither"
        ) from error


def _import_builders() -> ModuleType:
    _import_tfds().disable_progress_bar()
    return importlib.import_module("trustax.data.builders")
