"""``trustax score``: words to arguments, complaints in one line, and one whole run."""

import json

import pytest

from trustax.cli import commands
from trustax.cli.main import main
from trustax.testing.foreign import completions, records


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("score") / "rollouts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in records(completions())))
    return str(path)


def test_a_file_is_scored_and_the_json_written(file, tmp_path, capsys):
    out = tmp_path / "score.json"
    arguments = ["score", file, "--recipes", "pg_is,pdm_topk_kl", "--set", "pdm_topk_kl.delta=inf", "--json", str(out)]
    assert main([*arguments, "--tokens", "2"]) == 0
    shown = capsys.readouterr().out
    assert "4 rows, 18 tokens to train on, layout arrays" in shown and shown.count(", token ") == 2
    found = json.loads(out.read_text())
    assert list(found["recipes"]) == ["pg_is", "pdm_topk_kl"] and len(found["interesting"]) == 2
    assert found["recipes"]["pdm_topk_kl"]["mask/fraction"] == 0.0  # δ = ∞ drops nothing


def test_every_word_is_passed_on(monkeypatch, file):
    seen = {}
    monkeypatch.setattr(commands, "score_file", lambda path, **keywords: seen.update(path=str(path), **keywords))
    monkeypatch.setattr(commands, "print_score", lambda console, found: None)
    words = ["--layout", "vllm", "--skip-bad", "--vocab-size", "99", "--tokens", "5", "--recipes", "grpo, pdm_topk_kl"]
    words += ["--set", "pdm_topk_kl.tail=none", "--set", "pdm_topk_kl.cap=3", "--set", "grpo.eps_low=0.1"]
    assert main(["score", file, *words]) == 0
    assert seen == {
        "path": file, "recipes": ["grpo", "pdm_topk_kl"], "layout": "vllm", "skip_bad": True, "vocab_size": 99,
        "tokens": 5, "settings": {"pdm_topk_kl": {"tail": "none", "cap": 3.0}, "grpo": {"eps_low": 0.1}},
    }  # fmt: skip
    assert main(["score", file]) == 0
    assert seen["recipes"] is None and seen["settings"] == {} and seen["tokens"] == 0 and not seen["skip_bad"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "FILE; see trustax score --help"),
        (["{file}", "--recipes", "pdm_top_kl"], "no recipe 'pdm_top_kl'; did you mean pdm_topk_kl?"),
        (["{file}", "--recipes", ","], "--recipes names no recipe"),
        (["{file}", "--set", "pdm_topk_kl"], "--set 'pdm_topk_kl' must be recipe.name=value"),
        (["{file}", "--set", "pdm.delta=1"], "--set pdm.delta=1: no recipe 'pdm'"),
        (["{file}", "--set", "pdm_topk_kl.dleta=1"], "no hyperparameter 'dleta'; did you mean delta?"),
        (["{file}", "--set", "pdm_topk_kl.delta=x"], "--set pdm_topk_kl.delta must be a number, got 'x'"),
        (["{file}", "--set", "pdm_topk_kl.delta=-1"], "delta = -1 is outside [0, inf]"),
        (
            ["{file}", "--set", "pdm_topk_kl.tail=x"],
            "tail 'x' is unknown: expected one of exact, aggregated",
        ),
        (["{file}", "--set", "pdm_topk_kl.aggregation=x"], "'x' is unknown"),
        (["{file}", "--layout", "trl"], "no layout 'trl'; known: arrays, vllm, sglang"),
        (["{file}", "delta=1"], "unknown argument delta=1; hyperparameters are given as --set"),
        (["{file}", "--tokens", "0"], "at least 1, got '0'"),
        (["{file}", "--layout", "vllm"], ":1: no token_ids"),
        (["{file}.none"], "no file"),
        (["{file}", "--recipes", "grpo"], "they lack: log_anchor"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(file, capsys, words, expected):
    assert main(["score", *(word.format(file=file) for word in words)]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("trustax: ") and complaint.count("\n") == 1 and expected in complaint


def test_a_json_file_that_cannot_be_written_is_named(file, tmp_path, capsys):
    words = ["--recipes", "pg_is", "--json", str(tmp_path / "none" / "out.json")]
    assert main(["score", file, *words]) == 2
    assert "out.json: No such file or directory" in capsys.readouterr().err


def test_help_names_the_layouts_and_has_an_example(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["score", "--help"])
    shown = capsys.readouterr().out
    assert stopped.value.code == 0 and "usage: trustax score FILE" in shown and "example:\n  trustax score " in shown
    assert all(layout in shown for layout in ("arrays ", "vllm ", "sglang "))
