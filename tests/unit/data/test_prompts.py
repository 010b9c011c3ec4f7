from pathlib import Path

import pytest

from trustax.data import CharTokenizer, DataConfig, Example, ListSource, PromptEncoder


class Counting(CharTokenizer):
    """Counts how often it is asked."""

    calls = 0

    def encode_prompt(self, prompt: str, system: str | None = None) -> list[int]:
        self.calls += 1
        return super().encode_prompt(prompt, system)


SOURCE = ListSource("sums", [Example(i, f"{i} + {i}", str(2 * i)) for i in range(12)])


def encoder(folder: Path, tokenizer: CharTokenizer, template: str = "{prompt} =", max_length: int = 9) -> PromptEncoder:
    config = DataConfig(template=template, folder=str(folder), drop_long=True)
    return PromptEncoder(config, tokenizer, max_length=max_length)


def test_prompts_are_tokenised_once(tmp_path: Path) -> None:
    first = Counting()
    one = encoder(tmp_path, first)
    assert one.fit(SOURCE) is SOURCE
    ids = [one(SOURCE[i]) for i in range(12)]
    assert first.calls == 12 and ids[3] == first.encode("3 + 3 =")
    second = Counting()
    again = encoder(tmp_path, second)
    again.fit(SOURCE)
    assert [again(SOURCE[i]) for i in range(12)] == ids and second.calls == 0


def test_another_template_tokenizer_or_set_is_another_key(tmp_path: Path) -> None:
    """open-instruct#1518: a cache without template and tokenizer in its key serves the wrong ids."""
    base = encoder(tmp_path, Counting())
    base.load(SOURCE)
    other_set = ListSource("sums", [Example(0, "9 + 9", "18")])
    for template, alphabet, source in (("{prompt}:", None, SOURCE), ("{prompt} =", "=+ 9876543210", SOURCE),
                                       ("{prompt} =", None, other_set)):  # fmt: skip
        tokenizer = Counting() if alphabet is None else Counting(alphabet)
        one = encoder(tmp_path, tokenizer, template)
        one.load(source)
        assert tokenizer.calls == len(source)
        text = template.format(prompt=source[0].prompt)
        assert one(source[0]) == tokenizer.encode(text)
    assert len(list(tmp_path.glob("tokens-*.npz"))) == 4


def test_a_file_cut_short_is_made_anew(tmp_path: Path) -> None:
    encoder(tmp_path, Counting()).load(SOURCE)
    (path,) = tmp_path.glob("tokens-*.npz")
    for size in (0, 100, path.stat().st_size - 1):
        whole = path.read_bytes()
        path.write_bytes(whole[:size])
        tokenizer = Counting()
        encoder(tmp_path, tokenizer).load(SOURCE)
        assert tokenizer.calls == 12 and path.read_bytes()[:2] == b"PK"


def test_an_empty_split_after_the_length_filter_says_what_emptied_it(tmp_path: Path) -> None:
    kept = encoder(tmp_path, Counting(), max_length=7).fit(SOURCE)
    assert len(kept) == 10
    with pytest.raises(
        ValueError, match=r"all 12 prompts have more than 3 tokens \(the shortest has 7\); nothing is left"
    ):
        encoder(tmp_path, Counting(), max_length=3).fit(SOURCE)
