"""Equality of formulas by math-verify. Loaded by path in the pool's workers: nothing of the package is imported."""

import importlib.util

# Decimals equal an irrational number only to this many digits: 1.41 is not the square root of 2.
FLOAT_DIGITS = 12


def agree(right: str, given: str) -> bool | None:
    """Whether math-verify takes ``given`` for ``right``; None if it can read only one of them, or none."""
    from math_verify import LatexExtractionConfig, parse, verify

    config = [LatexExtractionConfig()]
    gold = parse(f"${right}$", extraction_config=config, parsing_timeout=0)
    answer = parse(f"${given}$", extraction_config=config, parsing_timeout=0)
    if not gold or not answer:
        return None
    return verify(gold, answer, float_rounding=FLOAT_DIGITS, numeric_precision=FLOAT_DIGITS + 3, timeout_seconds=0)


def is_installed() -> bool:
    """Whether the package is there; nothing is imported."""
    return importlib.util.find_spec("math_verify") is not None
