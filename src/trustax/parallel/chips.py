"""What the makers say about their chips.

Source: Google Cloud TPU documentation, "System architecture" pages of each version: peak bfloat16 FLOP/s, memory and
its bandwidth, bandwidth between chips, all per chip. The CPU's row is a laptop's, rounded, and only orders magnitudes.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
    """Peak FLOP/s (bfloat16), memory in bytes, bytes/s to memory and to the other chips."""

    flops: float
    memory: float
    memory_bandwidth: float
    link_bandwidth: float


GIB = 2.0**30
CHIPS: dict[str, Chip] = {
    "v4": Chip(275e12, 32 * GIB, 1.228e12, 300e9),
    "v5e": Chip(197e12, 16 * GIB, 0.819e12, 200e9),
    "v5p": Chip(459e12, 95 * GIB, 2.765e12, 600e9),
    "v6e": Chip(918e12, 32 * GIB, 1.640e12, 448e9),
    "cpu": Chip(1e11, 16 * GIB, 2e10, 1e10),
}
