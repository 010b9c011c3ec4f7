"""Configs: everything wrong is said at once, in one line, before anything is computed."""

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trustax import objectives, verifiers
from trustax.data.config import DataConfig
from trustax.errors import ConfigError
from trustax.evaluation.config import EvalConfig
from trustax.experiment.config import ExperimentConfig, ObjectiveConfig, check_objective, check_sizes
from trustax.experiment.config_files import diff, from_json, load_config, to_json
from trustax.experiment.overrides import apply_overrides
from trustax.rollouts.config import RolloutConfig
from trustax.training.config import OptimizerConfig, SupervisedConfig, TrainConfig


def config(**changes) -> ExperimentConfig:
    return ExperimentConfig(**{"name": "toy", "train": TrainConfig(steps=10), **changes})


TEXT: Any = "1e-5"  # what a checker would refuse, and a config file may hold all the same


def message(call, *arguments, **keywords) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_config_survives_json():
    before = config(
        objective=ObjectiveConfig("ppo_clip", {"delta": math.inf, "clip": (0.2, 0.28), "tail": "exact", "ref": None}),
        train=TrainConfig(steps=3),
    )
    text = json.dumps(to_json(before), allow_nan=False)
    assert from_json(json.loads(text)) == before
    assert diff(before, from_json(json.loads(text))) == []


def test_from_json_reports_every_problem_with_its_place():
    text = message(
        from_json,
        {
            "name": "x",
            "train": {"stepss": 1},
            "optimizer": {"learning_rate": "1e-5"},
            "data": {"source": {"kind": "zip"}},
        },
    )
    assert "unknown key train.stepss; did you mean steps?" in text
    assert "missing key train.steps" in text
    assert "optimizer.learning_rate must be a number, got the text '1e-5'" in text
    assert "data.source must be" in text


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: OptimizerConfig(learning_rate=TEXT), "learning_rate must be a number, got the text '1e-5'"),
        (lambda: OptimizerConfig(learning_rate=-1.0, b2=1.0), "learning_rate must be at least 0, got -1.0; b2 must be"),
        (lambda: RolloutConfig(temperature=TEXT), "temperature must be a number, got the text '1e-5'"),
        (
            lambda: RolloutConfig(temperature=0.0, top_k=0),
            "top_k must be at least 1, got 0; temperature must be above 0",
        ),
        (lambda: TrainConfig(steps=0, eval_every=-1), "steps must be at least 1, got 0; eval_every must be at least 0"),
        (lambda: SupervisedConfig(steps=-1, batch_size=0), "steps must be at least 0, got -1; batch_size"),
        (lambda: EvalConfig(prompts=0, temperature=-1.0), "prompts must be at least 1, got 0; temperature"),
        (lambda: DataConfig(template=TEXT, drop_long=TEXT), "drop_long must be true or false, got the text '1e-5'"),
        (lambda: config(name="../up"), "name becomes a folder's name"),
        (lambda: config(seed=-1), "seed must be at least 0"),
        (lambda: config(train=TrainConfig(steps=1, minibatches=3)), "prompts_per_step = 8 .* train.minibatches = 3"),
        (
            lambda: config(train=TrainConfig(steps=1, micro_batches=3)),
            "minibatch of 4 prompts .*train.micro_batches = 3",
        ),
    ],
)
def test_bad_values_are_refused_where_they_are_made(make, expected):
    with pytest.raises(ValueError, match=expected):
        make()


def recipe(*, delta: float = 0.15, tail: str = "exact", beta: float):
    return delta, tail, beta


def test_the_objective_is_checked_against_its_recipe():
    recipes = {"pdm_topk_kl": recipe}
    check_objective(ObjectiveConfig("pdm_topk_kl", {"delta": 0.1, "beta": 0.0}), recipes)
    text = message(check_objective, ObjectiveConfig("pdm_topk_kl", {"detla": 0.1}), recipes)
    assert "objective.hyperparameters.detla: pdm_topk_kl has no such hyperparameter; did you mean delta?" in text
    assert "objective.hyperparameters.beta: pdm_topk_kl has no default" in text
    assert "did you mean pdm_topk_kl?" in message(check_objective, ObjectiveConfig("pdm_topk_lk"), recipes)


def test_the_defaults_name_what_exists():
    check_objective(config().objective, objectives.RECIPES)
    verifiers.build(config().verifier.name, **config().verifier.options)


def test_sizes_are_checked_against_the_policy():
    check_sizes(config(), vocab_size=20, context_length=76)
    text = message(check_sizes, config(), vocab_size=19, context_length=75)
    assert "rollout.top_k = 20 is more than the vocabulary's 19 tokens" in text
    assert "64 + 12 = 76 is beyond the policy's context of 75 tokens" in text


GOOD = """
from trustax.experiment.config import ExperimentConfig
from trustax.training.config import OptimizerConfig, TrainConfig

def get_config():
    return ExperimentConfig(name="toy", train=TrainConfig(steps=2), optimizer=OptimizerConfig(learning_rate=1))
"""


def test_a_config_file_is_loaded_and_its_numbers_settled(tmp_path):
    path = tmp_path / "toy.py"
    path.write_text(GOOD)
    loaded = load_config(path)
    assert loaded == config(train=TrainConfig(steps=2), optimizer=OptimizerConfig(learning_rate=1.0))
    assert isinstance(loaded.optimizer.learning_rate, float)
    assert [entry.name for entry in tmp_path.iterdir()] == ["toy.py"]  # no __pycache__ beside a user's files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", "has no function get_config()"),
        ("get_config = 3", "has no function get_config()"),
        ("def get_config(): pass", "get_config() returned NoneType, expected ExperimentConfig; is a return missing?"),
        ("def get_config(:\n  pass", "bad.py:1: SyntaxError: "),
        ("import no_such_module", "bad.py:1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def get_config():\n    x = 1\n    return x / 0", "bad.py:3: ZeroDivisionError: division by zero"),
        (
            GOOD.replace("learning_rate=1)", 'learning_rate="1e-5")'),
            "bad.py:6: OptimizerConfig: learning_rate must be a number, got the text '1e-5'",
        ),
        (GOOD.replace("learning_rate", "learning_rte"), "bad.py:6: TypeError: "),
        (GOOD.replace('"toy"', '"a/b"'), "bad.py:6: ExperimentConfig: name becomes a folder's name"),
        (b"\xff\xfe", "bad.py"),
    ],
)
def test_a_bad_config_file_is_one_line_with_its_place(tmp_path, text, expected):
    path = tmp_path / "bad.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert expected in message(load_config, path)


def test_a_missing_config_file_is_named_with_its_neighbour(tmp_path):
    (tmp_path / "smollm2.py").write_text(GOOD)
    text = message(load_config, tmp_path / "smolm2.py")
    assert text.startswith("no config file") and text.endswith("smollm2.py?")
    message(load_config, tmp_path)  # a folder
    message(load_config, tmp_path / "none" / "x.py")


def test_overrides_reach_every_section_and_are_typed():
    before = config()
    changed = apply_overrides(
        before,
        ["optimizer.learning_rate=1e-5", "seed=3", "objective.hyperparameters.delta=.1", "data.source.digits=2",
         "data.drop_long=true", "data.source.train_size=5", "seed=4", "verifier.options.digits=[1, 2]"],
    )  # fmt: skip
    assert changed.optimizer.learning_rate == 1e-5
    assert changed.seed == 4  # of equal keys the last one counts
    assert changed.objective.hyperparameters == {"delta": 0.1}
    assert dataclasses.asdict(changed.data.source)["digits"] == 2
    assert changed.data.drop_long is True
    assert changed.verifier.options == {"digits": (1, 2)}
    assert before.objective.hyperparameters == {}  # nothing is changed in place
    assert "optimizer.learning_rate: 2e-05 → 1e-05" in diff(config(), changed)
    assert from_json(to_json(changed)) == changed


def test_overrides_that_depend_on_each_other_are_checked_together():
    changed = apply_overrides(config(), ["rollout.prompts_per_step=9", "train.minibatches=3"])
    assert (changed.rollout.prompts_per_step, changed.train.minibatches) == (9, 3)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("optimizer.learning_rte=1", "unknown key optimizer.learning_rte; did you mean optimizer.learning_rate?"),
        ("rollout.learning_rate=1", "did you mean optimizer.learning_rate or supervised.learning_rate?"),
        ("temperture=1", "unknown key temperture; "),
        ("rollot.top_k=3", "did you mean rollout.top_k?"),
        ("zzz=1", "valid: data, evaluation, mesh, name, "),
        ("optimizer.zzz=1", "valid: optimizer.b1, "),
        ("optimizer.learning_rate=abc", "optimizer.learning_rate must be a number, got 'abc'"),
        ("train.steps=1.5", "train.steps must be a whole number, got '1.5'"),
        ("data.drop_long=1", "data.drop_long must be true or false, got '1'"),
        ("optimizer=1", "optimizer is a section; set one of its keys: optimizer.learning_rate"),
        ("seed.x=1", "seed is a value, not a section: it has no 'x'"),
        ("seed", "'seed' is not an override; write section.key=value"),
        ("=3", "'=3' is not an override"),
        ("optimizer.learning_rate=-1", "optimizer: learning_rate must be at least 0, got -1.0"),
        ("rollout.prompts_per_step=7", "rollout.prompts_per_step = 7 does not divide into train.minibatches = 2"),
    ],
)
def test_a_bad_override_says_what_and_how_to_mend_it(override, expected):
    assert expected in message(apply_overrides, config(), [override])


def test_all_bad_overrides_are_reported_at_once():
    text = message(apply_overrides, config(), ["seed=x", "nonsense", "optimizer.b1=2", "optimizer.clip_nrm=.9"])
    assert "seed must be" in text and "'nonsense'" in text and "did you mean optimizer.clip_norm?" in text


@given(override=st.text() | st.builds("{}={}".format, st.sampled_from(["seed", "data.system", "optimizer"]), st.text()))
def test_any_override_gives_a_config_or_a_config_error(override):
    try:
        changed = apply_overrides(config(), [override])
    except ConfigError:
        return
    assert from_json(to_json(changed)) == changed
