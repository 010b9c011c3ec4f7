"""``trustax convert``: a folder in, a folder out, and one line for what cannot be converted."""

from pathlib import Path

import pytest

from trustax.cli.main import main
from trustax.policies.safetensors_io import read_headers

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "policies"


def test_a_folder_is_written_and_named(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["convert", str(GOLDEN / "llama"), str(out), "--dtype", "float16"]) == 0
    assert capsys.readouterr().out == f"{out}: config.json, model.safetensors\n"
    assert {tensor.dtype.name for tensor in read_headers(out).tensors.values()} == {"float16"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "out"], "nowhere: no such file or folder"),
        ([str(GOLDEN / "llama"), "out", "--dtype", "int8"], "dtype must be one of float32, bfloat16, float16"),
        ([str(GOLDEN / "llama"), str(GOLDEN / "llama")], "is there already and not an empty folder"),
        ([str(GOLDEN / "llama"), "out", "seed=1"], "unknown argument seed=1"),
        (["run", "out"], "its config.json cannot be read"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    assert main(["convert", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
