"""The page's diff is of lines that are in the files it names."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding_a_family.md").read_text()


def test_every_added_line_of_the_diff_is_in_its_file() -> None:
    (diff,) = re.findall(r"```diff\n(.*?)```", PAGE, flags=re.DOTALL)
    seen, file = 0, ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = (ROOT / line.removeprefix("+++ ")).read_text()
        elif line.startswith("+"):
            assert line[1:] in file.splitlines(), line
            seen += 1
    assert seen >= 9
