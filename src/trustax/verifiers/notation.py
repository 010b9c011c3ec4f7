"""One spelling for what LaTeX, Markdown and Unicode spell in many ways. Nothing is computed here."""

import re

# Words inside \text{...} are kept apart from letters of mathematics by these two.
TEXT_OPEN, TEXT_CLOSE = "⟦", "⟧"

_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
_DELIMITER_SIZE = re.compile(r"\\(?:left|right|[bB]igg?[lrm]?)(?![A-Za-z])")
_THIN_SPACE_IN_NUMBER = re.compile(r"(?<=\d)(?:\\,|\\ |\N{NARROW NO-BREAK SPACE}|\N{NO-BREAK SPACE}|~)(?=\d{3}(?!\d))")
_SPACE = re.compile(
    r"(?<!\\)\\[,;:! ]|\\q?quad(?![A-Za-z])|~|\N{NO-BREAK SPACE}|\N{NARROW NO-BREAK SPACE}|\N{THIN SPACE}"
)
_DEGREE = re.compile(r"\^\s*\{?\s*\\circ\s*\}?|°")
_COMMANDS = re.compile(
    r"\\(dfrac|tfrac|cfrac|cdot|times|ast|leqslant|geqslant|leq|geq|le|ge|lt|gt|varnothing)(?![A-Za-z])"
)
_SHORT = {
    "dfrac": r"\frac", "tfrac": r"\frac", "cfrac": r"\frac", "cdot": "*", "times": "*", "ast": "*",
    "lt": "<", "gt": ">",
    "leqslant": "≤", "geqslant": "≥", "leq": "≤", "geq": "≥", "le": "≤", "ge": "≥", "varnothing": r"\emptyset",
}  # fmt: skip
_CHARACTERS = str.maketrans({
    "\N{MINUS SIGN}": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "∪": r"\cup ", "∞": r"\infty ", "π": r"\pi ",
    "∅": r"\emptyset ", "±": r"\pm ", "√": r"\sqrt ", "²": "^2", "³": "^3", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}", "“": '"', "”": '"', "’": "'",
})  # fmt: skip
_OPENING = {"$$": "$$", "$": "$", r"\(": r"\)", r"\[": r"\]", "**": "**", "`": "`", '"': '"'}
_FRACTION_OF_DIGITS = re.compile(r"\\frac\s*(\d)\s*(\d)(?!\d)")
_ONE_IN_BRACES = re.compile(r"([\^_])\{\s*([A-Za-z0-9])\s*\}")


def unwrapped(text: str) -> str:
    r"""The text without the ``$``, ``\(``, ``**`` around all of it, and without a full stop at its end."""
    while True:
        before = text
        text = text.strip()
        if text.endswith(("...", r"\ldots")):
            return text
        text = text.rstrip(".,;:").strip() if not text.endswith(("\\,", "\\;", "\\:", "\\!")) else text[:-2]
        for left, right in _OPENING.items():
            inside = text[len(left) : -len(right)]
            if (
                len(text) > len(left) + len(right)
                and text.startswith(left)
                and text.endswith(right)
                and left not in inside
            ):
                text = inside
                break
        if text == before:
            return text


def normal(text: str) -> str:
    """The same mathematics in one spelling: sizes, spaces and styles gone, commands and characters by one name each."""
    text = unwrapped(text)
    if "$" in text and len(re.findall(r"(?<!\\)\$", text)) % 2 == 0:  # an odd one is money
        text = re.sub(r"(?<!\\)\$", " ", text).strip()
    if text.isascii() and "\\" not in text and "{" not in text:
        return text
    text = _THIN_SPACE_IN_NUMBER.sub(",", text).replace("{,}", ",").replace(r"\$", "$").replace(r"\%", "%")
    text = _DELIMITER_SIZE.sub("", text).replace(r"\displaystyle", "").replace(r"\!", "")
    text = _TEXT_COMMAND.sub(rf" {TEXT_OPEN}\1{TEXT_CLOSE}", text)
    text = _DEGREE.sub(f" {TEXT_OPEN}degrees{TEXT_CLOSE}", text)
    text = _SPACE.sub(" ", text).translate(_CHARACTERS)
    text = _COMMANDS.sub(lambda match: _SHORT[match[1]], text)
    text = _FRACTION_OF_DIGITS.sub(r"\\frac{\1}{\2}", text)
    return _ONE_IN_BRACES.sub(r"\1\2", text).strip()


def split_top(text: str, separators: str) -> list[str]:
    """Parts of a text between separators that stand in no bracket of any kind."""
    parts, depth, start, position = [], 0, 0, 0
    while position < len(text):
        char = text[position]
        if char == "\\" and text[position + 1 : position + 2] in ("{", "}"):
            depth += 1 if text[position + 1] == "{" else -1
            position += 2
            continue
        depth += (char in "([{⟦") - (char in ")]}⟧")
        if depth == 0 and char in separators:
            parts.append(text[start:position])
            start = position + 1
        position += 1
    return [*parts, text[start:]]
