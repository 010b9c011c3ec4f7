"""`trustax eval` on a policy before training and on a run: the numbers, the file, the page."""

import dataclasses
import json
from pathlib import Path

import pytest

from trustax.errors import ConfigError
from trustax.experiment import run
from trustax.experiment.eval_report import check_tokenizer, write_evaluation


@pytest.mark.slow
def test_an_evaluation_and_its_files(small_config, tmp_path: Path) -> None:
    config = small_config(steps=1)
    config = dataclasses.replace(
        config, evaluation=dataclasses.replace(config.evaluation, samples=4, temperature=0.7, top_p=0.9, at=(2,))
    )
    folder = tmp_path / "run"
    summary = run.train(config, folder)
    found = run.evaluate(config, checkpoint=folder)
    assert found.sampled == summary.eval_after and found.greedy == summary.greedy_after
    assert list(found.estimates) == ["avg@4", "pass@1", "pass@2", "pass@4", "maj@1", "maj@2", "maj@4"]
    assert found.estimates["avg@4"].value == pytest.approx(found.sampled)
    assert [len(prompt["samples"]) for prompt in found.prompts] == [4] * 5
    for sample in (sample for prompt in found.prompts for sample in prompt["samples"]):
        assert len(sample["log_mu"]) == len(sample["tokens"]) and max(sample["log_mu"]) <= 0
    write_evaluation(config, found, tmp_path / "report", checkpoint=folder)
    report = json.loads((tmp_path / "report" / "eval.json").read_text())
    assert report["estimates"]["pass@2"][0] == pytest.approx(found.estimates["pass@2"].value)
    page = (tmp_path / "report" / "eval.html").read_text()
    assert "The last training step" in page and "divergence" in page and "log μ" in page


def test_a_run_with_another_tokenizer_is_refused(small_config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from trustax.experiment import eval_report
    from trustax.experiment.config_files import to_json

    config = small_config()
    trained = dataclasses.replace(config, policy=dataclasses.replace(config.policy, source="elsewhere"))
    (tmp_path / "config.json").write_text(json.dumps({"config": to_json(trained)}))
    monkeypatch.setattr(eval_report, "load_policy_tokenizer", lambda _: SimpleNamespace(fingerprint="a"))
    parts = SimpleNamespace(config=config, tokenizer=SimpleNamespace(fingerprint="b"))
    with pytest.raises(ConfigError, match=r"trained with the tokenizer of policy.source = elsewhere.* the two differ"):
        check_tokenizer(parts, tmp_path)
    check_tokenizer(SimpleNamespace(config=config, tokenizer=SimpleNamespace(fingerprint="a")), tmp_path)
