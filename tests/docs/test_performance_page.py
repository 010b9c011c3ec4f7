"""docs/performance.md follows from its records; the bench and the figures run."""

import json

import pytest


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("scripts/docs/performance")


def test_the_page_follows_from_the_records(script):
    same = script.PAGE.read_text() == script.page()
    assert same, f"docs/performance.md does not follow from docs/records: run `{script.COMMAND}` and commit the page"


def test_a_changed_record_changes_the_page(script, monkeypatch, tmp_path):
    record = json.loads(script.RECORD.read_text())
    record["objective"]["loss_and_gradient"]["pdm_topk_kl"]["median_s"] *= 3
    changed = tmp_path / "objectives.json"
    changed.write_text(json.dumps(record))
    before = script.page()
    monkeypatch.setattr(script, "RECORD", changed)
    assert script.page() != before


def test_the_record_is_of_the_asked_for_shape_and_of_a_real_model(script):
    record = json.loads(script.RECORD.read_text())
    assert record["shape"] == {"B": 64, "T": 2048, "K": 20}
    assert record["step"]["parameters"] > 1e8


def test_the_objective_is_a_small_part_of_the_step(script):
    share = script._share(json.loads(script.RECORD.read_text()))
    assert max(share["loss_and_gradient"], share["with_metrics"], share["memory"]) < 0.02


@pytest.mark.slow
def test_the_bench_runs_and_makes_a_page(script, load_script, monkeypatch, tmp_path):
    bench = load_script("scripts/bench/objectives")
    path = tmp_path / "objectives.json"
    path.write_text(json.dumps(bench.record({"B": 2, "T": 8, "K": 4}, None, (2, 4), 1)))
    monkeypatch.setattr(script, "RECORD", path)
    assert "[2, 8], K = 4" in script.page()


@pytest.mark.slow
def test_every_figure_is_drawn(load_script, monkeypatch, tmp_path):
    figures = load_script("scripts/docs/figures")
    monkeypatch.setattr("sys.argv", ["figures", "--out", str(tmp_path)])
    figures.main()
    committed = {f"{name}.png" for name in figures.FIGURES_BY_NAME}
    assert {path.name for path in tmp_path.iterdir()} == committed
    assert all((figures.FIGURES / name).exists() for name in committed)
