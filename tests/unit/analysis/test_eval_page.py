import html.parser
import io

from rich.console import Console

from trustax.analysis.eval_page import eval_page, print_estimates

EVIL = "<script>alert('x')</script>\"&"


def report() -> dict:
    sample = {
        "verdict": "correct",
        "reward": 1.0,
        "completion": "7" + EVIL,
        "tokens": ["7", EVIL],
        "log_mu": [-0.1, -6.0],
    }
    return {
        "name": EVIL,
        "greedy": 0.5,
        "estimates": {"avg@2": [0.5, 0.25, 0.75]},
        "prompts": [{"prompt": EVIL, "answer": EVIL, "correct": 1, "samples": [sample]}],
    }


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)


def test_nothing_that_a_model_wrote_becomes_markup() -> None:
    trained = {
        "prompt": EVIL,
        "tokens": [EVIL],
        "verdict": "wrong",
        "reward": 0.0,
        "kept": [False],
        "divergence": [0.3],
    }
    page = eval_page(report(), trained=[trained], delta=0.15)
    parser = Tags()
    parser.feed(page)
    assert "script" not in parser.tags and "<script" not in page
    assert page.count("&lt;script&gt;") >= 5


def test_tokens_carry_their_numbers_and_fates() -> None:
    trained = {"prompt": "p", "tokens": ["a", "b"], "verdict": "wrong", "reward": 0.0, "kept": [True, False],
               "divergence": [None, 0.3]}  # fmt: skip
    page = eval_page(report(), trained=[trained], delta=0.15)
    assert 'style="background:rgb(253,253,255)" title="log μ -0.100"' in page
    assert 'title="log μ -6.000"' in page and "rgb(135,135,255)" in page
    assert '<span class=masked style="background:rgb(255,105,105)" title="divergence 0.3000, masked">b' in page
    assert "50.0%" in page and "25.0% … 75.0%" in page


def test_the_table() -> None:
    console = Console(file=io.StringIO(), width=80)
    print_estimates(console, report()["estimates"], greedy=0.5)
    text = console.file.getvalue()
    assert "avg@2" in text and "25.0% … 75.0%" in text and "greedy" in text
