"""TFDS builders with array_record files. Import this module only where ``tensorflow_datasets`` may be needed.

They are prepared offline, without TensorFlow. ``sources.load`` is the way to them; a builder may also be used on its
own: ``Arithmetic(source=ArithmeticConfig(digits=2), data_dir=...)``.
"""

import abc
import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

from trustax.data import arithmetic, published, reasoning
from trustax.data.config import ArithmeticConfig, PublishedConfig, ReasoningGymConfig
from trustax.data.types import Example


class _ExampleBuilder(tfds.core.GeneratorBasedBuilder, abc.ABC, skip_registration=True):
    """Writes the splits of a source config as records of ``Example``'s four fields."""

    DESCRIPTION: ClassVar[str]
    # TFDS looks beside a builder's code for checksums of downloads, for which it needs a package that it doesn't
    # declare (importlib_resources). Nothing is downloaded here.
    code_path = None

    def __init__(self, *, source: Any, **kwargs: Any) -> None:
        self._source = source
        super().__init__(file_format="array_record", **kwargs)

    @abc.abstractmethod
    def _examples(self) -> dict[str, list[Example]]: ...

    def _info(self) -> tfds.core.DatasetInfo:
        features = {
            "index": np.int64,
            "prompt": tfds.features.Text(),
            "answer": tfds.features.Text(),
            "metadata": tfds.features.Text(),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.DESCRIPTION,
            disable_shuffling=True,
            features=tfds.features.FeaturesDict(features),
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
        del dl_manager  # everything is generated here
        return {split: self._generate_examples(examples) for split, examples in self._examples().items()}

    def _generate_examples(self, examples: list[Example]) -> Iterator[tuple[int, dict[str, Any]]]:
        for example in examples:
            yield example.index, dataclasses.asdict(example)


class Arithmetic(_ExampleBuilder, skip_registration=True):
    """Sums, differences, products and chains, with disjoint operands in train and test."""

    # Part of the prepared folder's key: raise it whenever the same config gives other records.
    VERSION = tfds.core.Version("1.0.0")
    DESCRIPTION = "Arithmetic problems generated from a config."

    def __init__(self, *, source: ArithmeticConfig, **kwargs: Any) -> None:
        super().__init__(source=source, **kwargs)

    def _examples(self) -> dict[str, list[Example]]:
        return arithmetic.split(self._source)


class ReasoningGym(_ExampleBuilder, skip_registration=True):
    """A task of reasoning-gym, with its scorer's record in the metadata."""

    VERSION = tfds.core.Version("1.0.0")
    DESCRIPTION = "Questions of a reasoning-gym task generated from a config."

    def __init__(self, *, source: ReasoningGymConfig, **kwargs: Any) -> None:
        super().__init__(source=source, **kwargs)

    def _examples(self) -> dict[str, list[Example]]:
        return reasoning.split(self._source)


class Published(_ExampleBuilder, skip_registration=True):
    """A set of the papers, from a file that the user has downloaded; its hash is in the prepared folder's key."""

    VERSION = tfds.core.Version("1.0.0")
    DESCRIPTION = "A published set of questions, read from a local file."

    def __init__(self, *, source: PublishedConfig, **kwargs: Any) -> None:
        super().__init__(source=source, **kwargs)

    def _examples(self) -> dict[str, list[Example]]:
        source = self._source
        sides = published.split(source.name, source.path, filtered=source.filtered)
        return {
            side: [replace(one, prompt=source.wording.replace("{prompt}", one.prompt)) for one in examples]
            for side, examples in sides.items()
        }
