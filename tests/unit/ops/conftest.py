"""Fixtures of the mathematics: float64, and the golden tokens."""

import json
import pathlib
import types

import jax
import numpy as np
import pytest

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "golden" / "directions.json").read_text())


@pytest.fixture
def x64():
    """Float64 for the length of one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def golden():
    """Tokens with numbers worked out in float64, stacked: the vocabulary padded with probability 0, slots with NaN."""
    size, slots = max(len(case["mu"]) for case in GOLDEN), max(len(case["support_ids"]) for case in GOLDEN)

    def padded(rows, width, fill):
        return np.array([list(row) + [fill] * (width - len(row)) for row in rows])

    with np.errstate(divide="ignore"):
        log_pi, log_mu = (np.log(padded([case[n] for case in GOLDEN], size, 0.0)) for n in ("pi", "mu"))
    ids = padded([case["support_ids"] for case in GOLDEN], slots, 0)
    mask = padded([case["support_mask"] for case in GOLDEN], slots, False)
    chosen = [np.where(mask, np.take_along_axis(x, ids, axis=-1), np.nan) for x in (log_pi, log_mu)]
    return types.SimpleNamespace(
        log_probs=(log_pi, log_mu),
        support=(*chosen, mask),
        sampled_slot=np.array([case["sampled_slot"] for case in GOLDEN]),
        sampled_ids=np.array([case["sampled_id"] for case in GOLDEN]),
        vocab_sizes=[len(case["mu"]) for case in GOLDEN],
        expected=[case["expected"] for case in GOLDEN],
    )
