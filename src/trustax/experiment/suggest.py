"""The name that was probably meant."""

import difflib
from collections.abc import Iterable


def nearest(name: str, valid: Iterable[str]) -> str:
    """``"; did you mean X?"`` if a valid name is close, else ``"; valid: …"``, to be put after a complaint."""
    valid = sorted(valid)
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; valid: {', '.join(valid)}" if valid else ""


def nearest_key(key: str, valid: Iterable[str]) -> str:
    """The same for a dotted key: a right name in the wrong section is pointed at its own section first."""
    valid = sorted(valid)
    section, _, last = key.rpartition(".")
    elsewhere = [other for other in valid if other.rpartition(".")[2] == last]
    if elsewhere:
        return f"; did you mean {' or '.join(elsewhere)}?"
    siblings = [other for other in valid if other.startswith(f"{section}.")] if section else _top_level(valid)
    if not siblings:  # no such section: any key may have been meant
        return nearest(key, valid)
    by_name = {other.removeprefix(f"{section}."): other for other in siblings}
    close = difflib.get_close_matches(last, by_name, n=1, cutoff=0.6)
    return f"; did you mean {by_name[close[0]]}?" if close else f"; valid: {', '.join(siblings)}"


def _top_level(valid: Iterable[str]) -> list[str]:
    return sorted({key.partition(".")[0] for key in valid})
