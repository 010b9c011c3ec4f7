"""From any place that holds a policy to a Hugging Face folder: a run, a GGUF file, another such folder."""

import json
from pathlib import Path

from trustax import policies
from trustax.errors import ConfigError
from trustax.experiment.assemble import as_config_error, build_parts
from trustax.experiment.config_files import from_json
from trustax.experiment.files import naming
from trustax.experiment.run import trained_params


def convert(source: Path, folder: Path, *, dtype: str | None, shard_bytes: int, adapter: bool = False) -> list[str]:
    """Write the policy in ``source`` as a Hugging Face folder; returns the names of its files.

    A run folder gives the policy of its last checkpoint, with the tokenizer of the one it started from. Adapters are
    merged, or written alone in PEFT's layout if ``adapter`` says so.
    """
    with as_config_error(), naming(folder):
        if (source / "checkpoints").is_dir():
            return _from_run(source, folder, dtype, shard_bytes, adapter)
        if adapter:
            raise ConfigError(f"{source} is no run folder; --adapter writes the adapters that a run has trained")
        loaded = policies.load(source)
        place = policies.find(source)
        place = place if place.is_dir() else place.parent if loaded.tokenizer_folder is not None else None
        return policies.save(folder, loaded.config, loaded.params, source=place, dtype=dtype, shard_bytes=shard_bytes)


def _from_run(run: Path, folder: Path, dtype: str | None, shard_bytes: int, adapter: bool) -> list[str]:
    try:
        config = from_json(json.loads((run / "config.json").read_text(encoding="utf-8"))["config"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{run}: its config.json cannot be read ({error}); give the folder of a run") from error
    parts = build_parts(config)
    params = trained_params(parts, run)
    source = Path(config.policy.source)
    place = source if source.is_dir() else source.parent if source.is_file() else None
    policy = parts.policy
    if adapter:
        return policies.save_adapter(folder, policy.config, policy.lora, params, base=config.policy.source)
    merged = policies.merge(params, policy.lora) if policy.lora.rank else params
    return policies.save(folder, policy.config, merged, source=place, dtype=dtype, shard_bytes=shard_bytes)
