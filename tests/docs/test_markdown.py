"""The Python blocks of the pages run, in order, in one namespace per page; the links of the pages lead somewhere.

A line of a failing block is reported by its page and line number.
"""

import pathlib
import re
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\S*)\s*$")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"(`+)[^`]+\1")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
IMAGE_LIMIT = 200_000


class Block(NamedTuple):
    """A fenced block: its language, the line number of its first line, and its text."""

    language: str
    line: int
    code: str


def blocks(text: str) -> list[Block]:
    found, opened = [], None
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if not fence:
            continue
        if opened is None:
            opened = (fence[1], number + 1)
        else:
            language, first = opened
            found.append(Block(language, first, "\n".join(lines[first - 1 : number - 1])))
            opened = None
    assert opened is None, f"the block that begins at line {opened} is not closed"
    return found


def run(page: pathlib.Path) -> int:
    """Run the Python blocks of a page; return how many there were."""
    namespace = {"__name__": "__page__"}
    python = [block for block in blocks(page.read_text()) if block.language == "python"]
    for block in python:
        # Blank lines in front, so that a traceback names the page's own line.
        source = "\n" * (block.line - 1) + block.code
        exec(compile(source, str(page), "exec"), namespace)
    return len(python)


def prose(text: str) -> str:
    """A page without its code, in which brackets are no links."""
    outside, inside = [], False
    for line in text.split("\n"):
        if FENCE.match(line):
            inside = not inside
        elif not inside and not line.startswith("    "):
            outside.append(CODE.sub("", line))
    return "\n".join(outside)


def anchors(text: str) -> set[str]:
    """The ids that GitHub gives to headings."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in plain}


def dead_links(page: pathlib.Path) -> list[str]:
    found = []
    for link in LINK.findall(prose(page.read_text())):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target.read_text())):
            found.append(link)
    return found


WITH_CODE = [page for page in PAGES if any(block.language == "python" for block in blocks(page.read_text()))]


def name_of(page: pathlib.Path) -> str:
    return page.relative_to(ROOT).as_posix()


# Pages that teach compile a good deal; the README is short.
RUN = [pytest.param(page, marks=() if page.name == "README.md" else pytest.mark.slow) for page in WITH_CODE]


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_code_of_a_page_runs(page):
    assert run(page) > 0


def test_the_pages_that_teach_have_code():
    assert {"docs/objectives.md", "docs/guidance.md"} <= {name_of(page) for page in WITH_CODE}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_pictures_are_there(page):
    assert dead_links(page) == []


def test_every_picture_is_small_and_shown():
    text = "".join(page.read_text() for page in PAGES)
    for picture in (ROOT / "docs" / "figures").glob("*.png"):
        assert picture.stat().st_size < IMAGE_LIMIT, f"{picture.name} has {picture.stat().st_size} bytes"
        assert f"figures/{picture.name}" in text, f"no page shows {picture.name}"


def test_a_wrong_block_fails_with_its_own_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\n```python\nx = 1\n```\n\n```text\nnot code\n```\n\n```python\nassert x == 1\nassert x == 2\n```\n"
    )
    with pytest.raises(AssertionError) as caught:
        run(page)
    assert caught.traceback[-1].lineno + 1 == 13


def test_a_dead_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    links = "[a](gone.md) [b](#one-two) [c](#three) [d](page.md#one-two) [e](https://example.com) `[f](code)`"
    page.write_text(f"# One two\n{links}\n```python\nx[1](2)\n```\n    y[1](2)\n")
    assert dead_links(page) == ["gone.md", "#three"]
