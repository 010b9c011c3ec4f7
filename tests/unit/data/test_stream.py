import json
from pathlib import Path

import pytest

from trustax.data import ArithmeticConfig, DataConfig, Example, ListSource, PromptStream, load


def source_of(length: int, name: str = "numbers") -> ListSource:
    return ListSource(name, [Example(i, f"p{i}", str(i)) for i in range(length)])


def take(stream: PromptStream, steps: int) -> list[list[int]]:
    return [[example.index for example in next(stream)] for _ in range(steps)]


@pytest.mark.parametrize("length", [1, 2, 5, 7, 12])
@pytest.mark.parametrize("batch_size", [1, 3, 5, 8])
def test_every_epoch_has_every_example_once(length: int, batch_size: int) -> None:
    epochs = 4
    batches = take(PromptStream(source_of(length), batch_size=batch_size, seed=0), -(-epochs * length // batch_size))
    assert all(len(batch) == batch_size for batch in batches)
    order = [index for batch in batches for index in batch]
    for epoch in range(epochs):
        assert sorted(order[epoch * length : (epoch + 1) * length]) == list(range(length))


def test_epochs_and_seeds_differ() -> None:
    first, second = take(PromptStream(source_of(30), batch_size=30, seed=0), 2)
    assert first != second
    assert take(PromptStream(source_of(30), batch_size=30, seed=1), 1)[0] != first
    assert first != list(range(30))


def test_a_seed_fixes_the_order() -> None:
    assert take(PromptStream(source_of(7), batch_size=3, seed=5), 9) == take(
        PromptStream(source_of(7), batch_size=3, seed=5), 9
    )


def test_resume_from_every_stop_equals_the_uninterrupted_order() -> None:
    """C01: mid-epoch, at the epoch's edge and beyond; the state goes through JSON as in a checkpoint."""
    whole = take(PromptStream(source_of(7), batch_size=3, seed=2), 12)
    for stop in range(12):
        before = PromptStream(source_of(7), batch_size=3, seed=2)
        assert take(before, stop) == whole[:stop]
        state = json.loads(json.dumps(before.get_state()))
        take(before, 2)  # whatever was read after the state was taken does not count
        after = PromptStream(source_of(7), batch_size=3, seed=2)
        after.set_state(state)
        assert take(after, 12 - stop) == whole[stop:]


def test_a_state_of_something_else_is_refused() -> None:
    state = PromptStream(source_of(7), batch_size=3, seed=2).get_state()
    with pytest.raises(ValueError, match="length was 7, is 8; batch_size was 3, is 4; seed was 2, is 1"):
        PromptStream(source_of(8), batch_size=4, seed=1).set_state(state)
    with pytest.raises(ValueError, match="source was 'numbers', is 'others'"):
        PromptStream(source_of(7, "others"), batch_size=3, seed=2).set_state(state)
    with pytest.raises(ValueError, match="lacks step"):
        PromptStream(source_of(7), batch_size=3, seed=2).set_state({k: state[k] for k in state if k != "step"})
    with pytest.raises(ValueError, match="got -1"):
        PromptStream(source_of(7), batch_size=3, seed=2).set_state({**state, "step": -1})


def test_wrong_arguments_are_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"batch_size must be at least 1, got 0; seed .*; the source numbers has no"):
        PromptStream(source_of(0), batch_size=0, seed=-1)


def test_epochs_are_counted() -> None:
    stream = PromptStream(source_of(8), batch_size=6, seed=0)
    take(stream, 2)
    assert stream.epoch == 1.5


def test_prepared_files_stream_too(data_folder: Path) -> None:
    source = load(DataConfig(ArithmeticConfig(operation="chain", terms=2), folder=str(data_folder)), "test")
    stream = PromptStream(source, batch_size=len(source), seed=0)
    assert {example.prompt for example in next(stream)} == {source[i].prompt for i in range(len(source))}


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_processes_together_read_every_record_once_an_epoch(processes: int) -> None:
    """From any interruption point, with sizes that divide nothing, and after a restart with other processes."""
    source, size, batch_size, steps = source_of(7), 7, 5, 9
    whole = take(PromptStream(source, batch_size=batch_size, seed=3), steps)

    def streams(count: int) -> list[PromptStream]:
        return [PromptStream(source, batch_size=batch_size, seed=3, part=(p, count)) for p in range(count)]

    def together(streams: list[PromptStream]) -> list[int]:
        return [example.index for stream in streams for example in next(stream)]

    first, second = streams(processes), streams(processes % 4 + 1)
    for stop in range(steps):
        state = json.loads(json.dumps(first[-1].get_state()))
        for stream in second:
            stream.set_state(state)
        assert [together(second) for _ in range(steps - stop)] == whole[stop:]
        assert together(first) == whole[stop]
    order = [index for batch in whole for index in batch]
    for epoch in range(len(order) // size):
        assert sorted(order[epoch * size : (epoch + 1) * size]) == list(range(size))


def test_without_shuffling_the_order_is_the_sources() -> None:
    stream = PromptStream(source_of(5), batch_size=3, seed=0, shuffle=False)
    assert [index for batch in take(stream, 4) for index in batch] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    with pytest.raises(ValueError, match="lacks shuffle"):
        stream.set_state(PromptStream(source_of(5), batch_size=3, seed=0).get_state())
    with pytest.raises(ValueError, match="part must be"):
        PromptStream(source_of(5), batch_size=3, seed=0, part=(2, 2))
