"""Devices that need not be here: a TPU slice as its compiler knows it, or virtual CPU devices."""

import os
import re
from typing import Any

import jax

from trustax.parallel.chips import CHIPS


def topology_devices(name: str) -> tuple[str, list[Any]]:
    """The kind of chip and the devices of ``"KIND:AxB"`` or ``"KIND:AxBxC"``, or of ``"cpu:N"``.

    Raises:
      ValueError: an unknown kind or shape; TPU support that is not installed.
    """
    match = re.fullmatch(r"(\w+):(\d+(?:x\d+){0,2})", name)
    if match is None or match[1] not in CHIPS:
        raise ValueError(f"topology {name!r}: expected KIND:SHAPE such as v5e:16x16; kinds: {', '.join(CHIPS)}")
    kind, shape = match[1], match[2]
    if kind == "cpu":
        there = jax.devices("cpu")
        if not shape.isdecimal() or int(shape) > len(there):
            raise ValueError(
                f"topology {name!r}: this process has {len(there)} CPU devices; for more set "
                "XLA_FLAGS=--xla_force_host_platform_device_count=N"
            )
        return kind, there[: int(shape)]
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # no chip is asked for: do not look for one
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    from jax.experimental import topologies

    try:
        return kind, list(topologies.get_topology_desc(platform="tpu", topology_name=name).devices)
    except Exception as error:  # whatever the plugin trips over, be it missing or be the shape unknown to it
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"topology {name!r}: the TPU compiler does not give it ({reason}); it needs the extra 'tpu' (libtpu) and "
            "a shape that exists, such as v5e:4x4, v5e:16x16, v5p:4x4x8, v6e:16x16"
        ) from error
