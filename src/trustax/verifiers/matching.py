"""A regular expression on a text. Loaded by a worker of the pool by its path: nothing of the package is imported."""

import collections
import re


def last_match(pattern: str, flags: int, text: str) -> str | None:
    """What the group ``answer`` of the last match holds, or all of the match; None without one."""
    found = collections.deque(re.finditer(pattern, text, flags), maxlen=1)
    last = found[0] if found else None
    if last is None:
        return None
    return last["answer"] if "answer" in last.re.groupindex else last[0]
