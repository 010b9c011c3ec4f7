"""Completions of one policy judged under another, from a file: the numbers, and what a file must hold."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trustax import policies
from trustax.errors import UserError
from trustax.evaluation.off_policy import OffPolicyOptions, evaluate_off_policy
from trustax.rollouts.importers import LoggedReader
from trustax.sampling.keys import sample_keys
from trustax.sampling.sampler import Sampler
from trustax.types import Transform

PROMPTS, GROUP = [[5, 6, 7], [8, 9, 10, 11], [12]], 6


@pytest.fixture(scope="module")
def policy():
    return policies.build(policies.tiny_config(17, hidden_size=32, num_layers=1, mlp_size=32))


@pytest.fixture(scope="module")
def params(policy):
    return jax.tree.map(lambda x: 2.0 * x if x.ndim > 1 else x, policy.init(jax.random.key(0)))


@pytest.fixture(scope="module")
def rows(policy, params):
    """What the policy wrote at temperature 1, as a file would hold it; the reward is the share of even ids."""
    sampler = Sampler(policy, max_new_tokens=4, top_k=0, eos_ids=frozenset({1}), pad_id=0)
    tokens, valid = np.zeros((3, 4), np.int32), np.zeros((3, 4), bool)
    for row, prompt in enumerate(PROMPTS):
        tokens[row, 4 - len(prompt) :], valid[row, 4 - len(prompt) :] = prompt, True
    index = jnp.repeat(jnp.arange(3, dtype=jnp.int32), GROUP)
    keys = sample_keys(0, 0, index, jnp.tile(jnp.arange(GROUP, dtype=jnp.int32), 3))
    found = jax.device_get(sampler(params, tokens, valid, index, keys, Transform()))
    records = []
    for row in range(3 * GROUP):
        ids = found.tokens[row][found.token_mask[row]]
        log_mu = found.log_mu[row][found.token_mask[row]]
        records.append({"prompt_tokens": PROMPTS[row // GROUP], "tokens": ids.tolist(), "log_mu": log_mu.tolist(),
                        "reward": float(np.mean(ids % 2 == 0)), "text": "x"})  # fmt: skip
    return records


def read(tmp_path, records, **options):
    file = tmp_path / "rollouts.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return list(LoggedReader(file, **options))


def judge(policy, params, rows, *, temperature=1.0, **options):
    return evaluate_off_policy(
        policy, params, rows, encode=lambda text: [5, 6, 7], pad_id=0, transform=Transform(temperature=temperature),
        options=OffPolicyOptions(floor=0.0, **options),
    )  # fmt: skip


@pytest.mark.slow
def test_a_policy_is_worth_what_it_earned(policy, params, rows, tmp_path):
    report = judge(policy, params, read(tmp_path, rows))
    mean = np.mean([row["reward"] for row in rows])
    assert report.estimate == pytest.approx(mean, abs=1e-4) and report.behavior == pytest.approx(mean)
    assert report.effective == pytest.approx(18, abs=1e-3) and report.prompts == 3
    cold = judge(policy, params, read(tmp_path, rows), temperature=0.6)
    assert abs(cold.estimate - mean) > 0.01 and cold.effective < 17.9


@pytest.mark.slow
def test_values_are_learned_from_hidden_states(policy, params, rows, tmp_path):
    many = [row | {"group_id": i} for i, row in enumerate(rows)]  # prompts of their own, so that there are five folds
    report = judge(policy, params, read(tmp_path, many), value="linear", tau=2.0)
    assert report.prompts == 18 and report.estimate == pytest.approx(report.behavior, abs=1e-3)  # by step it telescopes


def test_text_prompts_are_encoded_and_are_groups(policy, params, rows, tmp_path):
    named = [{k: v for k, v in row.items() if k != "prompt_tokens"} | {"prompt": "a"} for row in rows]
    ids = [row | {"prompt_tokens": [5, 6, 7]} for row in rows]
    by_text, by_ids = (judge(policy, params, read(tmp_path, some)) for some in (named, ids))
    assert by_text.estimate == pytest.approx(by_ids.estimate) and by_text.prompts == by_ids.prompts == 1


def test_what_another_wrote_inside_a_completion_is_context_and_not_weighed(policy, params, rows, tmp_path):
    """A tool's token keeps later tokens' log-probs as they are, but has no ratio of its own."""
    masked = []
    for row in rows:
        mask = [True] * len(row["tokens"])
        log_mu = list(row["log_mu"])
        if len(mask) > 2:
            mask[1], log_mu[1] = False, None
        masked.append(row | {"token_mask": mask, "log_mu": log_mu})
    report = judge(policy, params, read(tmp_path, masked))
    assert report.effective == pytest.approx(18, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"log_mu": None}, "no known layout: arrays has tokens and log_mu"),
        ({"log_mu": [None, -1.0, -1.0, -1.0]}, "token 0: no μ: log_mu is missing"),
        ({"log_mu": [float("-inf"), -1.0, -1.0, -1.0]}, "token 0: μ gives the token probability 0"),
        ({"log_mu": [0.5, -1.0, -1.0, -1.0]}, "log_mu is above 0"),
        ({"tokens": [99, 2, 3, 4], "log_mu": [-1.0] * 4}, "token 0: the id is outside the vocabulary"),
        ({"reward": None}, "no reward"),
        ({"reward": "good"}, "reward must be a number"),
        ({"prompt_tokens": None}, "no prompt: give prompt_tokens"),
        ({"token_mask": [0, 0, 0, 0]}, "no token to weigh"),
    ],
)
def test_a_row_that_cannot_be_weighed_is_refused_with_its_line(rows, tmp_path, change, expected):
    full = next(row for row in rows if len(row["tokens"]) == 4)
    with pytest.raises(UserError, match=expected) as refusal:
        read(tmp_path, [full | change, full], vocab_size=17)
    assert "rollouts.jsonl:1" in str(refusal.value)


def test_a_completion_beyond_the_context_is_refused(policy, params, rows, tmp_path):
    long = rows[0] | {"prompt_tokens": [5] * policy.config.context_length}
    with pytest.raises(UserError, match=r"rollouts.jsonl:1: .* beyond the policy's context"):
        judge(policy, params, read(tmp_path, [long]))
