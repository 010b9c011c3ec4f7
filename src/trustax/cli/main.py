"""``trustax COMMAND CONFIG [key=value …]``: exit code 0 only if the job did what it says.

2 is bad input, 1 a run that failed, 128 + the signal's number a run that was stopped with its state saved. Each comes
with one line; a traceback is a fault of ours. What is slow to import (JAX and all that stands on it) is imported by the
command that needs it, so that ``--help`` answers at once.
"""

import argparse
import errno
import logging
import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import trustax
from trustax.errors import RunError, RunInterrupted, UserError

_FAILED, _BAD_INPUT = 1, 2


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line like all others."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        options, overrides = _parse(sys.argv[1:] if arguments is None else list(arguments))
        logging.getLogger("absl").setLevel(logging.CRITICAL)  # orbax logs a traceback beside the error that it raises
        _COMMANDS[options.command](options, overrides)
        sys.stdout.flush()
        return 0
    except UserError as error:
        return _fail(error, _BAD_INPUT)
    except RunInterrupted as error:
        return _fail(error, 128 + error.signal_number)
    except RunError as error:
        return _fail(error, _FAILED)
    except KeyboardInterrupt:
        return _fail(
            "interrupted; a later run of the same command resumes from the last checkpoint", 128 + signal.SIGINT
        )
    except BrokenPipeError:  # whoever read our output has gone, as in `trustax sample … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    except ValueError as error:
        # Layers below say ValueError to bad input that they find while they build. One from elsewhere is a fault.
        if not _raised_here(error.__traceback__):
            raise
        return _fail(error, _BAD_INPUT)
    except OSError as error:
        if error.filename is None:
            raise
        code = _FAILED if error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT) else _BAD_INPUT
        return _fail(f"{error.filename}: {error.strerror}", code)


def _fail(error: object, code: int) -> int:
    print("trustax: " + " ".join(str(error).split()), file=sys.stderr)
    return code


def _raised_here(tb: TracebackType | None) -> bool:
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    return tb is not None and tb.tb_frame.f_globals.get("__name__", "").startswith("trustax.")


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    # Overrides may stand before, between and after options, which argparse has no word for: they are what is left.
    options, rest = _parser().parse_known_args(arguments)
    unknown = [argument for argument in rest if argument.startswith("-")]
    if unknown:
        raise UserError(f"unknown option {unknown[0]}; see trustax {options.command} --help")
    return options, rest


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="trustax",
        description="Reinforcement learning of language models under a divergence trust region.",
        epilog="Each command has its own --help, with an example.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"trustax {trustax.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, text: str, example: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=text,
            description=text,
            usage=f"trustax {name} CONFIG [key=value …] [options]",
            epilog="key=value: any value of the config, by its dotted name.\n\nexample:\n"
            + textwrap.indent(example, "  "),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        sub.add_argument("config", metavar="CONFIG", type=Path, help="a Python file with get_config()")
        return sub

    train = command(
        "train",
        "Train a policy; run the same command again to resume it.",
        "trustax train configs/tiny.py seed=1 optimizer.learning_rate=1e-5 --output runs/first",
    )
    supervised = command(
        "sft",
        "Train a policy on the sources' own answers, to warm-start it.",
        "trustax sft configs/tiny.py supervised.steps=300 --output runs/warm",
    )
    for sub, default in ((train, "runs/NAME-seedSEED"), (supervised, "runs/NAME-sft-seedSEED")):
        sub.add_argument("--output", type=Path, metavar="DIR", help=f"run folder (default: {default})")
        sub.add_argument("--overwrite", action="store_true", help="remove the run that is in the folder first")

    sample = command(
        "sample",
        "Print completions of held-out prompts, or of your own.",
        "trustax sample configs/tiny.py --checkpoint runs/tiny-seed0 --prompt '3+4=' --count 4",
    )
    sample.add_argument("--prompt", action="append", metavar="TEXT", help="a prompt of your own; may be repeated")
    sample.add_argument("--count", type=_at_least_one, default=4, metavar="N", help="completions a prompt (default: 4)")
    sample.add_argument("--greedy", action="store_true", help="the most probable token each time")

    sample.add_argument(
        "--rollouts", type=Path, metavar="OUT", help="write held-out completions with their log-probs, for --off-policy"
    )

    evaluate = command(
        "eval",
        "Measure avg@k, pass@k and maj@k on held-out prompts, with intervals.",
        "trustax eval configs/tiny.py --checkpoint runs/tiny-seed0 evaluation.samples=16 --output report\n"
        "trustax eval configs/tiny.py --checkpoint runs/tiny-seed0 --off-policy rollouts.jsonl",
    )
    evaluate.add_argument("--output", type=Path, metavar="DIR", help="write eval.json and eval.html there")
    _add_off_policy(evaluate)
    for sub in (sample, evaluate):
        sub.add_argument(
            "--checkpoint",
            type=Path,
            metavar="DIR",
            help="a run folder (eval: or a Hugging Face folder; default: the policy before training)",
        )
    plan = command(
        "plan",
        "Compile the run for a machine that is not here, and say what each chip needs.",
        "trustax plan configs/qwen3_8b.py --topology v5e:16x16",
    )
    plan.add_argument("--topology", required=True, metavar="KIND:SHAPE", help="such as v5e:16x16, v5p:4x4x8 or cpu:8")
    plan.add_argument("--json", type=Path, metavar="OUT", help="write everything to a file too")
    _add_score(commands)
    _add_convert(commands)
    return parser


def _add_convert(commands: Any) -> None:
    text = "Write a policy as a folder that transformers and vLLM open."
    convert = commands.add_parser(
        "convert",
        help=text,
        description=text,
        usage="trustax convert IN OUT [options]",
        epilog=(
            "IN is a run folder (its last checkpoint), a Hugging Face folder, or a GGUF file. The tokenizer and\n"
            "generation files of the policy's source are carried along.\n\n"
            "example:\n  trustax convert runs/smollm2-sums-seed0 exported --dtype bfloat16"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    convert.add_argument("source", metavar="IN", type=Path, help="where the policy is")
    convert.add_argument("folder", metavar="OUT", type=Path, help="a folder that is absent or empty")
    convert.add_argument(
        "--adapter", action="store_true", help="write a run's adapters alone, in PEFT's layout (default: merge them)"
    )
    convert.add_argument(
        "--dtype", metavar="NAME", help="float32, bfloat16 or float16 (default: as in the policy's source)"
    )
    convert.add_argument(
        "--shard-mb", type=_at_least_one, default=5000, metavar="N", help="the most that a file holds (default: 5000)"
    )


def _add_off_policy(evaluate: argparse.ArgumentParser) -> None:
    group = evaluate.add_argument_group(
        "from another policy's completions, without sampling",
        "JSONL or parquet, a completion a row: prompt_tokens or prompt, reward, and the sampler's part as in "
        "`trustax score --help`. The value is that of sampling at evaluation.temperature.",
    )
    group.add_argument("--off-policy", type=Path, metavar="ROLLOUTS", help="estimate the mean reward from this file")
    group.add_argument("--tau", type=float, metavar="X", help="largest prefix ratio (default: √completions)")
    group.add_argument(
        "--value", choices=("group", "linear", "network"), help="value of a prefix: mean reward of the prompt's others "
        "(default), or learned from hidden states",
    )  # fmt: skip
    group.add_argument("--ess-floor", type=float, metavar="N", help="refuse below so many effective rollouts (10)")
    group.add_argument("--layout", metavar="NAME", help="arrays, vllm or sglang (default: by the fields)")
    group.add_argument("--skip-bad", action="store_true", help="leave bad rows out")
    group.add_argument("--json", type=Path, metavar="OUT", help="write the report to a file too")


def _add_score(commands: Any) -> None:
    text = "Say what every recipe would mask in rollouts of any engine and trainer, and why."
    score = commands.add_parser(
        "score",
        help=text,
        description=text,
        usage="trustax score FILE [options]",
        epilog=(
            "A row of the file is one completion, in one of three layouts:\n"
            "  arrays   tokens, log_mu; top_k_ids, top_k_log_mu [T][K]\n"
            "  vllm     token_ids, logprobs: a mapping {id: {logprob, …}} a token\n"
            "  sglang   output_token_logprobs, output_top_logprobs: [logprob, token_id, text], also under meta_info\n"
            "and, whatever the layout: log_pi, the trainer's log-probs; advantages, a number or one a token.\n"
            "Optional: top_k_log_pi, the trainer's on the same top-K ({id: log-prob} or in their order); token_mask,\n"
            "group_id, log_anchor, log_ref, entropy, sum_sq_pi, policy_staleness, divergence_rate, tail_log_mu,\n"
            "tail_log_pi, tail_log_sum_sq_pi. Only completion tokens; entry t is the log-prob of token t.\n\n"
            "example:\n  trustax score rollouts.jsonl --recipes ppo_clip,pdm_topk_kl --set pdm_topk_kl.delta=0.1"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    score.add_argument("file", metavar="FILE", type=Path, help="JSONL, or parquet by its name's end")
    score.add_argument("--recipes", metavar="A,B,…", help="recipes to ask (default: all)")
    score.add_argument(
        "--set", action="append", default=[], metavar="RECIPE.NAME=VALUE", help="a hyperparameter; may be repeated"
    )
    score.add_argument("--layout", metavar="NAME", help="arrays, vllm or sglang (default: by the fields)")
    score.add_argument("--skip-bad", action="store_true", help="leave bad rows out, and count them")
    score.add_argument(
        "--vocab-size", type=_at_least_one, metavar="N", help="tokens of the vocabulary, without padding"
    )
    score.add_argument("--tokens", type=_at_least_one, metavar="N", help="print the N most interesting tokens")
    score.add_argument("--json", type=Path, metavar="OUT", help="write everything to a file too")


def _at_least_one(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return number


def _train(options: argparse.Namespace, overrides: list[str]) -> None:
    from trustax.cli import commands

    commands.train(options.config, overrides, output=options.output, overwrite=options.overwrite)


def _sft(options: argparse.Namespace, overrides: list[str]) -> None:
    from trustax.cli import commands

    commands.sft(options.config, overrides, output=options.output, overwrite=options.overwrite)


def _sample(options: argparse.Namespace, overrides: list[str]) -> None:
    from trustax.cli import commands

    if options.rollouts is not None:
        if options.prompt or options.greedy:
            raise UserError("--rollouts samples the held-out prompts, whose answers are known: no --prompt, --greedy")
        commands.log_rollouts(
            options.config, overrides, checkpoint=options.checkpoint, count=options.count, file=options.rollouts
        )
        return
    commands.sample(
        options.config,
        overrides,
        checkpoint=options.checkpoint,
        prompts=options.prompt,
        count=options.count,
        greedy=options.greedy,
    )


def _evaluate(options: argparse.Namespace, overrides: list[str]) -> None:
    from trustax.cli import commands

    given = {name: vars(options)[name] for name in ("tau", "value", "ess_floor", "layout", "json")}
    if options.off_policy is None:
        unused = [name.replace("_", "-") for name, value in given.items() if value is not None]
        if unused or options.skip_bad:
            raise UserError(f"--{[*unused, 'skip-bad'][0]} belongs to --off-policy ROLLOUTS, which is not given")
        commands.evaluate(options.config, overrides, checkpoint=options.checkpoint, output=options.output)
        return
    wanted = {"tau": options.tau, "value": options.value, "floor": options.ess_floor}
    commands.off_policy(
        options.config,
        overrides,
        checkpoint=options.checkpoint,
        rollouts=options.off_policy,
        options=commands.OffPolicyOptions(**{name: value for name, value in wanted.items() if value is not None}),
        layout=options.layout,
        skip_bad=options.skip_bad,
        json_file=options.json,
    )


def _plan(options: argparse.Namespace, overrides: list[str]) -> None:
    from trustax.cli import commands

    commands.plan(options.config, overrides, topology=options.topology, json_file=options.json)


def _score(options: argparse.Namespace, overrides: list[str]) -> None:
    from trustax.cli import commands

    if overrides:
        raise UserError(f"unknown argument {overrides[0]}; hyperparameters are given as --set recipe.name=value")
    commands.score(
        options.file,
        recipes=options.recipes,
        settings=options.set,
        layout=options.layout,
        skip_bad=options.skip_bad,
        vocab_size=options.vocab_size,
        tokens=options.tokens,
        json_file=options.json,
    )


def _convert(options: argparse.Namespace, overrides: list[str]) -> None:
    from trustax.cli import commands

    if overrides:
        raise UserError(f"unknown argument {overrides[0]}; trustax convert takes two places, IN and OUT")
    shard_bytes = options.shard_mb * 1_000_000
    commands.convert(
        options.source, options.folder, dtype=options.dtype, shard_bytes=shard_bytes, adapter=options.adapter
    )


_COMMANDS = {
    "train": _train,
    "sft": _sft,
    "sample": _sample,
    "eval": _evaluate,
    "plan": _plan,
    "score": _score,
    "convert": _convert,
}

if __name__ == "__main__":
    sys.exit(main())
