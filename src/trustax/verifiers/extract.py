"""Where the answer stands in what a model wrote."""

import re

from trustax.verifiers.notation import unwrapped
from trustax.verifiers.parsing import last_boxed

_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_PHRASE = re.compile(r"\banswer\b(?:\s+is)?\s*[:=]*\s*(?:is\s*)?(?::\s*)?", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|\.(?=\s|$)|[!?](?=\s|$)|, (?=because|since|as |so |which|where)")
_FORMULA = re.compile(r"\$([^$]+)\$|\\\((.+?)\\\)")


def find_answer(completion: str, *, whole: bool = True) -> str | None:
    r"""The text of the answer, None if the completion marks none.

    In this order: the last ``\boxed{...}`` (a box that never closes counts as no answer at all), the last
    ``<answer>...</answer>``, what follows the last ``####``, what follows the last "answer is" or "Answer:" up to the
    end of the sentence, and with ``whole`` the completion itself, if it is one line. A number somewhere in a text is no
    answer: "0 + 7 means" ends in an operand, not in a result.
    """
    if r"\boxed" in completion or r"\fbox" in completion:
        return _said(last_boxed(completion.replace(r"\fbox{", r"\boxed{").replace(r"\boxed {", r"\boxed{")))
    if tags := _TAG.findall(completion):
        return _said(tags[-1])
    if "####" in completion:
        return _said(completion.rpartition("####")[2].strip().partition("\n")[0])
    if phrases := list(_PHRASE.finditer(completion)):
        return _said(_first_sentence(completion[phrases[-1].end() :]))
    text = completion.strip()
    return _said(text) if whole and "\n" not in text else None


def _first_sentence(text: str) -> str:
    text = text.lstrip("* \n")
    if formula := _FORMULA.match(text):
        before_unit = text[: formula.end()]
        rest = _SENTENCE_END.split(text[formula.end() :], maxsplit=1)[0]
        # "$5$ cm" is one answer; "$5$ by symmetry" is one with an explanation.
        return before_unit + rest if len(rest.split()) <= 2 else before_unit
    return _SENTENCE_END.split(text, maxsplit=1)[0].rstrip("* ")


def _said(text: str | None) -> str | None:
    return None if text is None else unwrapped(text).strip() or None
