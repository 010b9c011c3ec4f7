"""What recipes say about a file: the numbers against NumPy, and what they must not depend on."""

import dataclasses
import io
import json

import jax
import numpy as np
import pytest
from compilations import compilations
from rich.console import Console

from trustax.analysis.score_file import _judge, score_file
from trustax.analysis.score_recipes import HINTS, choose, objectives
from trustax.analysis.score_report import print_score
from trustax.analysis.score_tokens import reason
from trustax.analysis.score_totals import LogHistogram
from trustax.errors import UserError
from trustax.objectives import RECIPES as EVERY_RECIPE
from trustax.rollouts.importers import OPTIONAL, FileReader, batches
from trustax.testing import oracles
from trustax.testing.foreign import completions, records

RECIPES = ["pg_is", "dppo_topk_kl", "pdm_topk_kl"]
LENGTHS = (5, 3, 1, 9, 14, 40)


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def found():
    return completions(3, LENGTHS)


@pytest.fixture(scope="module")
def file(found, tmp_path_factory):
    rows = [row | {"group_id": f"g{i // 2}"} for i, row in enumerate(records(found, "vllm"))]
    return written(tmp_path_factory.mktemp("score") / "rollouts.jsonl", rows)


@pytest.fixture(scope="module")
def score(file):
    return score_file(file, recipes=RECIPES, tokens=6)


def truth(found):
    """Divergence, outward by the ratio and by G, ratio and advantage of every token, from full distributions."""
    tokens, count = found.tokens, np.arange(sum(found.lengths))
    pi, mu, advantages = tokens.pi, tokens.mu, found.token_advantages
    log_ratio = np.log(pi[count, tokens.ids]) - np.log(mu[count, tokens.ids])
    direction = oracles.lumped_direction("kl", pi, mu, tokens.inside, tokens.ids)
    return {
        "divergence": oracles.lumped("kl", pi, mu, tokens.inside),
        "by_ratio": advantages * log_ratio > 0,
        "by_direction": advantages * direction > 0,
        "direction": direction,
        "ratio": np.exp(log_ratio),
        "advantages": advantages,
    }


@pytest.mark.parametrize(
    ("name", "outward", "delta", "cap"),
    [("dppo_topk_kl", "by_ratio", 0.05, np.inf), ("pdm_topk_kl", "by_direction", 0.15, 5.0)],
)
def test_the_numbers_of_a_recipe(score, found, name, outward, delta, cap):
    true, got = truth(found), score.recipes[name]
    far = true["divergence"] > delta
    dropped = far & true[outward]
    weights = np.minimum(true["ratio"], cap)[~dropped]
    expected = {
        "mask/fraction": dropped.mean(),
        "mask/fraction_positive": dropped[true["advantages"] > 0].mean(),
        "mask/fraction_negative": dropped[true["advantages"] < 0].mean(),
        "mask/far": far.mean(),
        "divergence/mean": true["divergence"].mean(),
        "divergence/max": true["divergence"].max(),
        "direction/disagreement": (true[outward] != true["by_ratio"])[far].mean(),
        "weight/mean": weights.mean(),
        "weight/max": weights.max(),
        "weight/ess": weights.sum() ** 2 / (len(weights) * (weights**2).sum()),
    }
    assert 0 < expected["mask/fraction"] < 1
    for key, value in expected.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-9, err_msg=key)
    p95 = np.quantile(true["divergence"], 0.95, method="inverted_cdf")
    np.testing.assert_allclose(got["divergence/p95"], p95, rtol=1e-3)


def test_the_reading_of_the_file(score, found):
    true, log_ratio = truth(found), np.log(truth(found)["ratio"])
    expected = {
        "tokens": sum(LENGTHS),
        "advantage/positive": (true["advantages"] > 0).mean(),
        "advantage/negative": (true["advantages"] < 0).mean(),
        "advantage/zero": 0.0,
        "log_ratio/mean": log_ratio.mean(),
        "log_ratio/mean_abs": np.abs(log_ratio).mean(),
        "log_ratio/max_abs": np.abs(log_ratio).max(),
        "direction/disagreement": (np.sign(true["direction"]) != np.sign(log_ratio)).mean(),
    }
    assert score.reading == pytest.approx(expected, rel=1e-9)
    assert expected["direction/disagreement"] > 0
    assert (score.rows, score.layout, score.statistics) == (6, "vllm", ["sum_sq_pi", "the top-K of both policies"])


def test_the_tokens_shown_are_those_on_which_recipes_differ_then_the_farthest(score, found):
    true = truth(found)
    drops = [(true["divergence"] > d) & true[o] for d, o in ((0.05, "by_ratio"), (0.15, "by_direction"))]
    divided = drops[0] != drops[1]
    order = np.lexsort((-true["divergence"], ~divided))[:6]
    ends = np.cumsum([0, *LENGTHS])
    rows = np.searchsorted(ends, order, side="right") - 1
    assert [token.place.rpartition(":")[2] for token in score.interesting] == [str(row + 1) for row in rows]
    assert [token.token for token in score.interesting] == (order - ends[rows]).tolist()
    for token, at in zip(score.interesting, order, strict=True):
        assert token.token_id == found.tokens.ids[at] and token.text == f"<{token.token_id}>"
        np.testing.assert_allclose(token.divergence, true["divergence"][at], rtol=1e-9)
        np.testing.assert_allclose(token.direction, true["direction"][at], rtol=1e-9)
        np.testing.assert_allclose((token.ratio, token.advantage), (true["ratio"][at], true["advantages"][at]))
        for name, dropped in zip(RECIPES[1:], drops, strict=True):
            assert token.recipes[name].kept == (not dropped[at])
        assert token.recipes["pg_is"].reason == "no mask"
    assert score.interesting[0].group == f"g{rows[0] // 2}"


def test_reasons():
    words = {
        (True, False, True): "near",
        (True, True, False): "inward",
        (False, True, True): "outward & far",
        (True, True, True): "exempt",
        (False, False, True): "another rule",
    }
    assert {key: reason(*key, masked=True) for key in words} == words
    assert reason(True, True, True, masked=False) == "no mask"


def numbers(score):
    places = [(token.place.rpartition(":")[2], token.token, token.recipes.keys()) for token in score.interesting]
    return score.recipes, score.reading, places


@pytest.mark.parametrize("layout", ["arrays", "sglang"])
def test_no_number_depends_on_the_layout(score, found, tmp_path, layout):
    other = score_file(written(tmp_path / "other.jsonl", records(found, layout)), recipes=RECIPES, tokens=6)
    assert other.layout == layout
    for a, b in zip(numbers(score)[:2], numbers(other)[:2], strict=True):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), a, b)
    assert numbers(score)[2] == numbers(other)[2]


def test_no_number_depends_on_batches_or_padding(score, file):
    other = score_file(file, recipes=RECIPES, tokens=6, most_rows=2)
    assert (score.batches, other.batches) == (2, 4)
    for a, b in zip(numbers(score)[:2], numbers(other)[:2], strict=True):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9), a, b)
    assert numbers(score)[2] == numbers(other)[2]


def test_masked_tokens_are_not_counted(score, found, tmp_path):
    rows = records(found, "vllm")
    for row in rows:
        row["token_ids"] = [0, *row["token_ids"]]
        row["logprobs"] = [None, *row["logprobs"]]
        row["log_pi"], row["sum_sq_pi"] = [None, *row["log_pi"]], [None, *row["sum_sq_pi"]]
        row["top_k_log_pi"] = [None, *row["top_k_log_pi"]]
        row["token_mask"] = [False] + [True] * (len(row["token_ids"]) - 1)
    other = score_file(written(tmp_path / "masked.jsonl", rows), recipes=RECIPES)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9), score.recipes, other.recipes)


def test_what_a_file_is_not_enough_for_is_listed(found, tmp_path):
    rows = [{key: row[key] for key in ("tokens", "log_mu", "log_pi", "advantages")} for row in records(found)]
    file = written(tmp_path / "plain.jsonl", rows)
    score = score_file(file, recipes=["pg_is", "ppo_clip", "pdm_topk_kl", "dppo_binary_tv"], tokens=1)
    assert list(score.recipes) == ["pg_is", "dppo_binary_tv"]
    assert score.lacking == {"ppo_clip": ["log_anchor"], "pdm_topk_kl": ["sum_sq_pi", "support"]}
    assert score.interesting[0].direction is None
    shown = printed(score)
    assert "lacks log_anchor (the trainer's log-probs at the start of the update): ppo_clip" in shown
    assert "tail=aggregated" not in shown  # another tail would not be enough
    with pytest.raises(UserError, match="meets the needs of none of the recipes asked for; they lack: log_anchor"):
        score_file(file, recipes=["ppo_clip"])


def test_without_a_sum_of_squares_the_papers_tail_can_be_asked_for(found, tmp_path):
    rows = [{key: row[key] for key in row if key != "sum_sq_pi"} for row in records(found)]
    settings = {"pdm_topk_kl": {"tail": "aggregated", "delta": 0.3}}
    file = written(tmp_path / "r.jsonl", rows)
    assert "--set pdm_topk_kl.tail=aggregated" in printed(score_file(file, recipes=["pg_is", "pdm_topk_kl"]))
    score = score_file(file, recipes=["pdm_topk_kl"], settings=settings)
    assert score.recipes["pdm_topk_kl"]["mask/far"] == pytest.approx((truth(found)["divergence"] > 0.3).mean())
    assert "tail aggregated" in score.reference


def test_recipes_that_look_at_the_batch_are_marked(file, found, tmp_path):
    score = score_file(file, recipes=["pg_is", "sat"])
    assert score.batch_statistics == ["sat"] and "sat*" in printed(score)


def test_bad_rows_are_left_out_of_every_number(score, found, tmp_path):
    rows = records(found, "vllm")
    broken = rows[0] | {"log_pi": [None] * 5}
    file = written(tmp_path / "bad.jsonl", [broken, *rows, broken])
    with pytest.raises(UserError, match="2 of 8 rows are bad"):
        score_file(file, recipes=RECIPES)
    other = score_file(file, recipes=RECIPES, skip_bad=True)
    assert (other.rows, other.skipped) == (6, 2) and "left out: 2 bad rows, such as" in printed(other)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), score.recipes, other.recipes)


def test_a_full_file_is_enough_for_every_recipe_and_every_need_has_a_hint(found, tmp_path):
    with jax.enable_x64(True):
        asked = objectives(list(EVERY_RECIPE), {})
    needs = frozenset().union(*(objective.needs for objective in asked.values()))
    assert needs <= set(HINTS)
    rows = [row | {name: [0.0] * len(row["tokens"]) for name in OPTIONAL if name not in row} for row in records(found)]
    (batch, *_) = batches(FileReader(written(tmp_path / "full.jsonl", rows)), vocab_size=12)
    assert choose(asked, batch.stats).lacking == {}


def test_wrong_recipes_are_refused_all_at_once():
    with pytest.raises(UserError, match=r"no recipe 'ppo'; .*has no hyperparameter 'dleta'; it has delta, cap"):
        objectives(["ppo", "pdm_topk_kl"], {"pdm_topk_kl": {"dleta": 1.0}})
    with pytest.raises(UserError, match=r"delta = 1\.5 is outside"):
        objectives(["dppo_binary_tv"], {"dppo_binary_tv": {"delta": 1.5}})
    with pytest.raises(UserError, match="pg_is is set, but is not among the recipes"):
        objectives(["aipo"], {"pg_is": {}})


def test_the_json_is_strict_and_holds_everything(score):
    def refuse(name):
        raise AssertionError(name)

    bad = dataclasses.replace(score, reading={"log_ratio/mean": -np.inf, "x": np.nan})
    assert json.loads(bad.to_json(), parse_constant=refuse)["reading"] == {"log_ratio/mean": "-Infinity", "x": "NaN"}
    back = json.loads(score.to_json(), parse_constant=refuse)
    assert back["recipes"] == score.recipes and len(back["interesting"]) == 6
    assert back["interesting"][0]["recipes"]["pg_is"]["kept"] is True


def printed(score) -> str:
    out = io.StringIO()
    print_score(Console(file=out, width=120), score)
    return out.getvalue()


def test_the_report_says_who_drops_a_token_and_why(score):
    out, row = printed(score), score.recipes["pdm_topk_kl"]
    assert "6 rows, 72 tokens to train on, layout vllm" in out
    assert "are both log-probs of one distribution?" in out  # these policies are 1 nat apart
    (line,) = [line for line in out.splitlines() if line.startswith("pdm_topk_kl ")]
    assert line.split()[1] == f"{row['mask/fraction']:.1%}" and line.split()[-1] == f"{row['weight/ess']:.1%}"
    token = score.interesting[0]
    assert f"{token.place}, token {token.token}, group {token.group}: {token.token_id}" in out
    assert "drop (outward & far): " in out and "keep (no mask): pg_is" in out and "\x1b" not in out


def test_text_of_a_model_cannot_steer_the_terminal(score):
    token = dataclasses.replace(score.interesting[0], text="\x1b[31m[bold]\n")
    out = printed(dataclasses.replace(score, interesting=[token], ignored=["\x1b[2J"]))
    assert "\x1b" not in out and "[bold]" in out


def test_a_histogram_knows_quantiles_to_a_tenth_of_a_percent():
    values = np.exp(np.random.default_rng(0).normal(size=4001) * 3)
    values[:1000] = 0.0
    histogram = LogHistogram()
    for part in np.array_split(values, 7):
        histogram.add(part)
    for share in (0.2, 0.5, 0.95, 1.0):
        expected = np.quantile(values, share, method="inverted_cdf")
        np.testing.assert_allclose(histogram.quantile(share), expected, rtol=6e-4)
    assert LogHistogram().quantile(0.95) == 0.0
    histogram.add(np.array([1e9, np.inf]))
    np.testing.assert_allclose(histogram.quantile(1.0), 1e6, rtol=1e-3)


def test_a_threshold_and_a_further_batch_compile_nothing_new(file):
    (batch, *_) = batches(FileReader(file))
    with jax.enable_x64(True):
        for delta in (0.1, 0.2):
            built = objectives(["dppo_topk_kl"], {"dppo_topk_kl": {"delta": delta}})
            with compilations() as count:
                _judge(built["dppo_topk_kl"], built, batch.stats)
    assert count() == 0
