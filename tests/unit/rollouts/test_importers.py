"""Files of other stacks: what each layout means, and what is refused, by name, line and token."""

import json
import sys

import numpy as np
import pytest

from trustax.errors import UserError
from trustax.ops.support import check_support
from trustax.rollouts.importers import FileReader, batches
from trustax.testing.foreign import completions, records

NAN = float("nan")
ALL = ("arrays", "vllm", "sglang")
ROW = {"tokens": [4, 7], "log_mu": [-0.5, -1.0], "log_pi": [-0.25, -2.0], "advantages": 0.5}
TOP = {
    "top_k_ids": [[4, 5], [5, 6]],
    "top_k_log_mu": [[-0.5, -1.5], [-0.9, -1.6]],
    "top_k_log_pi": [[-0.25, -2.5], [-0.6, -1.7]],
}
VLLM = {
    "token_ids": [4, 7],
    "logprobs": [{"4": -0.5, "5": -1.5}, {"7": -1.0, "5": -0.9, "6": -1.6}],
    "log_pi": [-0.25, -2.0],
    "top_k_log_pi": [{"4": -0.25, "5": -2.5}, {"5": -0.6, "6": -1.7}],
    "advantages": 0.5,
}
SGLANG = {
    "output_token_logprobs": [[-0.5, 4, "a"], [-1.0, 7, "b"]],
    "output_top_logprobs": [[[-0.5, 4, "a"], [-1.5, 5, "c"]], [[-0.9, 5, "c"], [-1.6, 6, "d"]]],
    "log_pi": [-0.25, -2.0],
    "top_k_log_pi": [[[-0.25, 4], [-2.5, 5]], [[-0.6, 5], [-1.7, 6]]],
    "advantages": 0.5,
}


@pytest.fixture
def file(tmp_path):
    def write(*rows, name="rollouts.jsonl"):
        path = tmp_path / name
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return path

    return write


def read(path, **options):
    reader = FileReader(path, **options)
    return reader, list(reader)


def slots(row, t):
    """The token's top-K as {id: (log μ, log π)}."""
    top = row.top
    return {
        int(top.ids[t, k]): (float(top.log_mu[t, k]), float(top.log_pi[t, k])) for k in np.flatnonzero(top.present[t])
    }


@pytest.mark.parametrize("row", [ROW | TOP, VLLM, SGLANG], ids=ALL)
def test_each_layout_by_hand(file, row):
    reader, (found,) = read(file(row))
    assert found.tokens.tolist() == [4, 7]
    assert found.log_mu.tolist() == [-0.5, -1.0] and found.log_pi.tolist() == [-0.25, -2.0]
    assert found.advantages.tolist() == [0.5, 0.5] and found.token_mask.tolist() == [True, True]
    assert slots(found, 0) == {4: (-0.5, -0.25), 5: (-1.5, -2.5)}
    second = slots(found, 1)
    # vLLM's mapping does not say what its K is: 7 stands between 5 and 6, so there it is one of the top-K.
    if "logprobs" in row:
        assert second.pop(7)[0] == -1.0
    assert second == {5: (-0.9, -0.6), 6: (-1.6, -1.7)}
    assert reader.ignored == set()


@pytest.mark.parametrize("layout", ALL)
def test_every_layout_gives_the_same_statistics(file, layout):
    found = completions()
    rows = records(found, layout)
    ((stats, _),) = batches(FileReader(file(*rows)), most_rows=4)
    support = stats.support
    check_support(support)
    at = 0
    for b, length in enumerate(found.lengths):
        assert np.asarray(stats.token_mask)[b].sum() == length
        for t in range(length):
            tokens, mask = found.tokens, np.asarray(support.mask)[b, t]
            got = dict(zip(np.asarray(support.ids)[b, t][mask].tolist(), np.flatnonzero(mask), strict=True))
            assert set(got) == set(np.flatnonzero(tokens.inside[at]))
            for name, probs in (("log_mu", tokens.mu), ("log_pi", tokens.pi)):
                values = np.asarray(getattr(support, name))[b, t]
                for token, slot in got.items():
                    np.testing.assert_allclose(values[slot], np.log(probs[at, token]), rtol=1e-12)
            assert got[tokens.ids[at]] == support.sampled_slot[b, t]
            at += 1
    assert np.isnan(np.asarray(stats.log_pi)[~np.asarray(stats.token_mask)]).all()


def test_a_sampled_id_that_stands_twice_counts_once(file):
    twice = ROW | {
        "top_k_ids": [[4, 4, 5], [7, 5, 6]],
        "top_k_log_mu": [[-0.5, -0.5, -1.5], [-1.0, -0.9, -1.6]],
        "top_k_log_pi": [[-0.25, -0.25, -2.5], [-2.0, -0.6, -1.7]],
    }
    _, (found,) = read(file(twice))
    assert slots(found, 0) == {4: (-0.5, -0.25), 5: (-1.5, -2.5)}
    assert set(slots(found, 1)) == {5, 7, 6}


def test_the_least_probable_of_an_engines_entries_is_not_in_the_top_k_if_it_was_sampled(file):
    row = VLLM | {"logprobs": [{"4": -0.5, "5": -1.5}, {"7": -2.5, "5": -0.9, "6": -1.6}]}
    _, (found,) = read(file(row))
    assert set(slots(found, 1)) == {5, 6} and found.top.ids.shape == (2, 2)


def test_the_sampled_tokens_own_log_probs_stand_in_its_slot(file):
    """The trainer need not list y again, and what an engine rounds in its top-K does not make two numbers of one."""
    row = VLLM | {"top_k_log_pi": [{"5": -2.5}, {"5": -0.6, "6": -1.7, "7": -2.0004}]}
    ((stats, _),) = batches(FileReader(file(row)))
    log_pi = np.take_along_axis(np.asarray(stats.support.log_pi), np.asarray(stats.support.sampled_slot)[..., None], -1)
    assert log_pi[0, :2, 0].tolist() == [-0.25, -2.0]


def test_masked_tokens_may_lack_everything(file):
    row = ROW | TOP | {"log_pi": [None, -2.0], "mask": [0, 1], "advantages": [None, 0.5]}
    row["top_k_log_pi"] = [None, [-0.6, -1.7]]
    _, (found,) = read(file(row))
    assert found.token_mask.tolist() == [False, True] and not found.top.present[0].any()


def test_optional_statistics_and_what_is_not_read(file):
    row = ROW | TOP | {"entropy": [1.0, 2.0], "tail_log_mu": [-3.0, -4.0], "reward": 1, "log_reff": [0, 0]}
    reader, _ = read(file(row))
    assert reader.statistics == {"entropy", "tail_log_mu", "the top-K of both policies"}
    assert reader.ignored == {"reward", "log_reff"}
    ((stats, _),) = batches(FileReader(file(row)))
    assert np.asarray(stats.entropy)[0, :2].tolist() == [1.0, 2.0]
    assert np.asarray(stats.support.tail_log_mu)[0, :2].tolist() == [-3.0, -4.0]


def changed(base, **changes):
    row = base | changes
    return {key: value for key, value in row.items() if value != "absent"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (changed(ROW, log_mu=[-0.5, None]), "token 1: log_mu is missing (null or NaN)"),
        (changed(ROW, log_pi=[NAN, NAN]), "token 0: log_pi is missing (null or NaN) (2 such tokens)"),
        (changed(ROW, advantages=[0.5, None]), "token 1: advantage is missing"),
        (changed(ROW, log_pi="absent"), "no log_pi"),
        (changed(ROW, advantages="absent"), "no advantages or advantage"),
        (changed(ROW, advantage=1.0), "advantages and advantage are both given"),
        (changed(ROW, log_mu=[-0.5, 0.7]), "token 1: log_mu 0.7 is above 0"),
        (changed(ROW, log_pi=[-0.5, -float("inf")]), "token 1: log_pi -inf is not finite"),
        (changed(ROW, log_mu=[-0.5]), "log_mu has 1 entries for 2 token ids: they part at token 1"),
        (changed(ROW, log_pi=[-1.0, -1.0, 0.0]), "log_pi has 3 entries for 2 token ids: they part at token 2"),
        (changed(ROW, token_mask=[1]), "token_mask has 1 entries"),
        (changed(ROW, token_mask=[1, 2]), "token 1: token_mask must be true, false, 1 or 0, got 2"),
        (changed(ROW, log_mu=[-0.5, "x"]), "token 1: log_mu must be a number, got 'x'"),
        (changed(ROW, log_mu=[-0.5, True]), "token 1: log_mu must be a number, got True"),
        (changed(ROW, tokens=[4, 7.5]), "token 1: tokens must be a token id, got 7.5"),
        (changed(ROW, tokens=[4, -7]), "token 1: id -7 is outside the vocabulary"),
        (changed(ROW, entropy=[1.0, None]), "token 1: entropy is missing"),
        (changed(ROW, sum_sq_pi=[1.0, 1.5]), "token 1: sum_sq_pi 1.5 is above 1"),
        (changed(ROW | TOP, top_k_ids=[[4, 5], [5]]), "token 1: top_k_ids and top_k_log_mu are not lists"),
        (changed(ROW | TOP, top_k_ids=[[4, 5]]), "top_k_ids has 1 entries for 2 token ids"),
        (changed(ROW | TOP, top_k_log_mu="absent"), "belong together"),
        (changed(ROW | TOP, top_k_ids=[[4, 5], [5, 5]]), "token 1: the top-K holds id 5 twice"),
        (changed(ROW | TOP, top_k_ids=[[4, 5], [5, -6]]), "token 1: top-K holds an id outside the vocabulary"),
        (changed(ROW | TOP, top_k_log_mu=[[-0.5, -1.5], [-0.2, -1.6]]), "token 1: top-K mass of log_mu 1.38851 is"),
        (changed(ROW | TOP, top_k_log_pi=[[-0.25, -0.9], [-0.6, -1.7]]), "token 0: top-K mass of log_pi 1.18537 is"),
        (changed(ROW | TOP, top_k_log_mu=[[-0.5, -1.5], [-0.9, 0.3]]), "token 1: top-K log_mu is above 0"),
        (changed(ROW | TOP, top_k_log_mu=[[-0.5, None], [-0.9, -1.6]]), "token 0: top-K log_mu of id 5 is missing"),
        (changed(ROW | TOP, top_k_log_pi=[[-0.25, -2.5], [-0.6, None]]), "token 1: top-K log_pi of id 6 is missing"),
        (changed(ROW | TOP, top_k_log_mu=[[-0.7, -1.5], [-0.9, -1.6]]), "token 0: log_mu of the sampled token is -0.5"),
        (changed(ROW | TOP, top_k_log_pi=[[-0.2], [-0.6, -1.7]]), "token 0: top_k_log_pi has 1 entries for 2 top-K"),
        (changed(VLLM, top_k_log_pi=[{"4": -0.25}, {"5": -0.6, "6": -1.7}]), "token 0: top-K log_pi of id 5 is"),
        (changed(VLLM, top_k_log_pi=[[-0.25, -2.5], [-0.6, -1.7]]), "token 0: top_k_log_pi has no ids"),
        (changed(VLLM, logprobs=[{"5": -1.5}, {"7": -1.0}]), "token 0: log_mu is missing"),
        (changed(VLLM, logprobs=[{"4": -0.5}]), "logprobs has 1 entries for 2 token ids"),
        (changed(VLLM, logprobs=[-0.5, -1.0]), "token 0: logprobs must map token ids to log-probs, got float"),
        (changed(SGLANG, output_ids=[4, 8]), "token 1: output_ids and output_token_logprobs differ"),
        (changed(SGLANG, output_ids=[4]), "output_token_logprobs has 2 entries for 1 token ids"),
        (changed(SGLANG, output_top_logprobs=[None, None]), "token 0: the top-K is missing"),
        (changed(SGLANG, output_token_logprobs=[[-0.5, 4], [None, 7]]), "token 1: log_mu is missing"),
        ('{"tokens": [4', "not valid JSON"),
        ("[1, 2]", "expected a JSON object, got list"),
        ('{"token_ids": [4], "logprobs": [{"4": -1, "4": -2}]}', "the key '4' stands twice"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_by_line_and_token(file, row, expected):
    path = file("", row)
    with pytest.raises(UserError) as caught:
        list(FileReader(path, layout=None if isinstance(row, dict) else "vllm"))
    assert str(caught.value).startswith(f"{path}:2: ") and expected in str(caught.value)
    assert "1 of 1 rows are bad: mend them, or leave them out with --skip-bad" in str(caught.value)


def test_bad_rows_can_be_left_out_and_are_counted(file):
    bad = ROW | {"log_pi": [-1.0, None]}
    reader, rows = read(file(ROW, bad, '{"tokens": [4', bad, ROW), skip_bad=True)
    assert [row.number for row in rows] == [1, 5] and (reader.rows, reader.skipped) == (2, 3)
    assert len(reader.problems) == 3 and ":2: token 1: log_pi is missing" in reader.problems[0]


def test_no_row_is_given_out_after_a_bad_one_and_few_are_listed(file):
    bad = ROW | {"log_mu": [None, -1.0]}
    given = []
    with pytest.raises(UserError, match="and 3 more; 8 of 10 rows are bad"):
        for row in FileReader(file(ROW, *[bad] * 8, ROW)):
            given.append(row.number)
    assert given == [1]
    with pytest.raises(UserError, match="2 of 2 rows are bad: no row is left"):
        list(FileReader(file(bad, bad), skip_bad=True))


def test_all_rows_must_hold_the_same(file):
    with pytest.raises(UserError, match=r"rollouts\.jsonl:2: log_ref is missing, which earlier rows have"):
        list(FileReader(file(ROW | {"log_ref": [-1.0, -1.0]}, ROW)))
    with pytest.raises(UserError, match=r"rollouts\.jsonl:2: log_ref is here, which earlier rows lack"):
        list(FileReader(file(ROW, ROW | {"log_ref": [-1.0, -1.0]})))


def test_ids_are_checked_against_the_vocabulary_if_it_is_known(file):
    with pytest.raises(UserError, match="token 1: id 7 is outside the vocabulary"):
        list(FileReader(file(ROW), vocab_size=7))
    assert len(list(FileReader(file(ROW), vocab_size=8))) == 1


def test_a_layout_is_detected_or_chosen(file):
    both = ROW | VLLM
    with pytest.raises(UserError, match=r"fit the layouts arrays \(tokens and log_mu\) and vllm .* --layout"):
        list(FileReader(file(both)))
    assert read(file(both), layout="vllm")[0].layout == "vllm"
    with pytest.raises(UserError, match=r"no known layout: arrays has tokens and log_mu; .*; found text"):
        list(FileReader(file({"text": "x"})))
    with pytest.raises(UserError, match="no output_token_logprobs"):
        list(FileReader(file(ROW), layout="sglang"))
    with pytest.raises(UserError, match="no layout 'trl'; known: arrays, vllm, sglang"):
        FileReader(file(ROW), layout="trl")


def test_files_that_are_none(file, tmp_path):
    with pytest.raises(UserError, match="no file"):
        list(FileReader(tmp_path / "none.jsonl"))
    with pytest.raises(UserError, match="holds no row"):
        list(FileReader(file("", "  ")))
    path = tmp_path / "binary.jsonl"
    path.write_bytes(b"PAR1\xff\xfe\x00\n")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        list(FileReader(path))


def test_batches_have_few_shapes_and_lose_no_row(file):
    lengths = (5, 40, 3, 33, 1, 200, 0)
    rows = [
        {"tokens": [i] * n, "log_mu": [-1.0 - i] * n, "log_pi": [-1.0] * n, "advantages": 1.0}
        for i, n in enumerate(lengths)
    ]
    found = list(batches(FileReader(file(*rows)), most_rows=2, most_tokens=256))
    assert sorted(row.number for batch in found for row in batch.rows) == list(range(1, 8))
    assert {batch.stats.log_pi.shape for batch in found} == {(2, 32), (2, 128), (1, 512)}
    for stats, of in found:
        mask, log_mu = np.asarray(stats.token_mask), np.asarray(stats.log_mu)
        assert stats.log_mu.dtype == np.float64 and np.isnan(log_mu[~mask]).all()
        for b, row in enumerate(of):
            np.testing.assert_array_equal(log_mu[b][mask[b]], row.log_mu)
        assert not mask[len(of) :].any()


class TestParquet:
    @pytest.fixture
    def arrow(self):
        pytest.importorskip("pyarrow", reason="pyarrow is missing: the extra parquet")
        return pytest.importorskip("pyarrow.parquet")

    @pytest.mark.parametrize("layout", ["arrays", "vllm"])
    def test_the_same_rows_as_from_json(self, arrow, file, tmp_path, layout):
        import pyarrow as pa

        rows = records(completions(), layout)
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        entry = pa.struct([("logprob", pa.float64()), ("rank", pa.int64()), ("decoded_token", pa.string())])
        if layout == "vllm":
            by_id = [[[(int(k), v) for k, v in t.items()] for t in row] for row in columns["logprobs"]]
            columns["logprobs"] = pa.array(by_id, pa.list_(pa.map_(pa.int64(), entry)))
            by_id = [[[(int(k), v) for k, v in t.items()] for t in row] for row in columns["top_k_log_pi"]]
            columns["top_k_log_pi"] = pa.array(by_id, pa.list_(pa.map_(pa.int64(), pa.float64())))
        path = tmp_path / "rollouts.parquet"
        arrow.write_table(pa.table(columns), path, row_group_size=2)
        from_json = read(file(*rows))[1]
        _, from_parquet = read(path)
        assert from_parquet[2].place == f"{path}, row 3"
        for a, b in zip(from_json, from_parquet, strict=True):
            for name in ("tokens", "log_mu", "log_pi", "advantages", "token_mask"):
                np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
            np.testing.assert_array_equal(a.top.ids, b.top.ids)
            np.testing.assert_array_equal(a.top.log_pi, b.top.log_pi)

    def test_missing_values_and_structs_by_id_are_refused(self, arrow, tmp_path):
        import pyarrow as pa

        path = tmp_path / "rollouts.parquet"
        arrow.write_table(pa.Table.from_pylist([ROW, ROW | {"log_mu": [-1.0, None]}]), path)
        with pytest.raises(UserError, match="row 2: token 1: log_mu is missing"):
            list(FileReader(path))
        arrow.write_table(pa.Table.from_pylist([VLLM]), path)
        with pytest.raises(UserError, match="column logprobs is a struct with ids as field names"):
            list(FileReader(path))
        path.write_text("no parquet")
        with pytest.raises(UserError, match="is not a parquet file"):
            list(FileReader(path))

    def test_without_pyarrow_the_extra_is_named(self, monkeypatch, tmp_path):
        path = tmp_path / "rollouts.parquet"
        path.write_bytes(b"PAR1")
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(UserError, match=r"parquet needs pyarrow: pip install 'trustax\[parquet\]'"):
            list(FileReader(path))
