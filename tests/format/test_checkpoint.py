"""Checkpoint files: what Kafka wrote, byte for byte, and everything else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptFile, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    format_leader_epochs,
    format_offset_checkpoint,
    parse_leader_epochs,
    parse_offset_checkpoint,
    read_leader_epochs,
    read_offset_checkpoint,
    write_leader_epochs,
    write_offset_checkpoint,
)
from tests import golden_data
from tests.log.helpers.damaged_bytes import damaged

NAMES = (
    RECOVERY_POINT_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
OFFSET_FILES = sorted(path for name in NAMES for path in golden_data.GOLDEN.glob(f"*/*/{name}"))
EPOCH_FILES = sorted(golden_data.GOLDEN.glob(f"*/*/*/{LEADER_EPOCH_CHECKPOINT}"))


def _name(path) -> str:
    return "/".join(path.relative_to(golden_data.GOLDEN).parts)


def test_every_golden_directory_has_all_four_checkpoints():
    assert len(OFFSET_FILES) == 3 * len(NAMES)


@pytest.mark.parametrize("path", OFFSET_FILES, ids=_name)
def test_rewriting_an_offset_checkpoint_gives_the_same_bytes(path, tmp_path):
    offsets = read_offset_checkpoint(path)
    write_offset_checkpoint(tmp_path / path.name, offsets)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("path", EPOCH_FILES, ids=_name)
def test_rewriting_a_leader_epoch_checkpoint_gives_the_same_bytes(path, tmp_path):
    epochs = read_leader_epochs(path)
    write_leader_epochs(tmp_path / path.name, epochs)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("log", golden_data.golden_logs(crashed=False), ids=str)
def test_golden_checkpoints_agree_with_kafkas_consumers(log):
    root = log.directory.parent
    key = (log.topic, log.partition)
    assert read_offset_checkpoint(root / HIGH_WATERMARK_CHECKPOINT)[key] == log.high_watermark
    assert read_offset_checkpoint(root / RECOVERY_POINT_CHECKPOINT)[key] == log.high_watermark
    first_base = int(log.segments()[0].stem)
    starts = read_offset_checkpoint(root / LOG_START_OFFSET_CHECKPOINT)
    assert starts.get(key, first_base) == log.log_start_offset


@pytest.mark.parametrize("log", golden_data.golden_logs(golden_data.KAFKA_4_3, crashed=False), ids=str)
def test_golden_leader_epochs_equal_those_in_the_batches(log):
    first: dict[int, int] = {}
    for path in log.segments():
        for batch in log.batches(path):
            first.setdefault(batch.leader_epoch, batch.base_offset)
    epochs = read_leader_epochs(log.directory / LEADER_EPOCH_CHECKPOINT)
    assert {epoch for epoch, _ in epochs} >= set(first)
    for epoch, start_offset in epochs:
        assert epoch not in first or start_offset <= max(first[epoch], log.log_start_offset)


@pytest.mark.parametrize("data", [b"", b"0\n", b"0", b"0\n0\n", b"0\n0"])
def test_file_without_entries_is_empty(data):
    assert parse_offset_checkpoint(data) == {}
    assert parse_leader_epochs(data) == []


def test_missing_file_is_empty(tmp_path):
    assert read_offset_checkpoint(tmp_path / "none") == {}
    assert read_leader_epochs(tmp_path / "none") == []


def test_checkpoint_edited_with_a_text_editor_is_read():
    assert parse_offset_checkpoint(b"0\r\n1\r\norders \t 3  7") == {("orders", 3): 7}


@pytest.mark.parametrize(
    ("data", "text", "position"),
    [
        (b"\n", "line 1 is '', expected 'version'", 0),
        (b"x\n0\n", "line 1 is 'x', expected 'version'", 0),
        (b"0\n1 2\n", "line 2 is '1 2', expected 'number of entries'", 2),
        (b"0\n1\norders 3\n", "line 3 is 'orders 3', expected 'topic partition offset'", 4),
        (b"0\n2\na 0 1\norders three 7\n", "line 4 is 'orders three 7'", 10),
        (b"0\n1\norders 3 7 9\n", "line 3", 4),
        (b"0\n1\norders -1 7\n", "line 3", 4),
        (b"0\n1\norders 2147483648 7\n", "line 3", 4),
        (b"0\n1\norders 3 9223372036854775808\n", "line 3", 4),
        (b"0\n1\norders 3 1_000\n", "line 3", 4),
        (b"0\n1\nor/ders 3 1\n", "line 3", 4),
        (b"0\n1\norders 3 \xd9\xa1\n", "line 3", 4),
        (b"0\n1\n" + b"x" * 1000 + b"\n", r"line 3 is 'x{60}\.\.\.'", 4),
        (b"0\n0\n\n", "line 3 is ''", 4),
        (b"0\n2\norders 3 7\n", "line 2 announces 2 entries, but 1 follow, up to line 3", None),
        (b"0\n0\norders 3 7\n", "line 2 announces 0 entries, but 1 follow", None),
        (b"0\n5\n", "line 2 announces 5 entries, but 0 follow", None),
    ],
)
def test_damaged_checkpoint_is_an_error_with_its_line(data, text, position, tmp_path):
    path = tmp_path / HIGH_WATERMARK_CHECKPOINT
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=text) as caught:
        read_offset_checkpoint(path)
    assert (caught.value.position, caught.value.path) == (position, str(path))


@pytest.mark.parametrize("data", [b"0\n1\n5\n", b"0\n1\n5 6 7\n", b"0\n1\n2147483648 0\n", b"0\n1\nfive 6\n"])
def test_damaged_leader_epoch_is_an_error_with_its_line(data, tmp_path):
    path = tmp_path / LEADER_EPOCH_CHECKPOINT
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=r"line 3 is .*expected 'epoch startOffset'") as caught:
        read_leader_epochs(path)
    assert caught.value.path == str(path)


def test_unknown_version_is_an_error(tmp_path):
    path = tmp_path / LEADER_EPOCH_CHECKPOINT
    path.write_bytes(b"1\n1\n5 6\n")
    for read in (read_leader_epochs, read_offset_checkpoint):
        with pytest.raises(UnsupportedFormat, match="version 1") as caught:
            read(path)
        assert caught.value.path == str(path)


def test_any_damage_gives_entries_or_a_kafkalog_error():
    for parse, data in (
        (parse_offset_checkpoint, b"0\n2\norders-eu 12 345\na.b_c 0 9223372036854775807\n"),
        (parse_leader_epochs, b"0\n2\n0 0\n17 12345\n"),
    ):
        for _what, bytes_ in damaged(data):
            with contextlib.suppress(KafkalogError):
                parse(bytes_)


def test_file_cut_before_its_last_number_is_an_error():
    data = b"0\n2\norders 12 345\na 0 7\n"
    for size in range(3, len(data) - 2):
        with pytest.raises(CorruptFile):
            pytest.fail(f"{size} bytes: {parse_offset_checkpoint(data[:size])}")


@given(st.binary(max_size=60))
def test_any_bytes_give_entries_or_a_kafkalog_error(data):
    for parse in (parse_offset_checkpoint, parse_leader_epochs):
        with contextlib.suppress(KafkalogError):
            parse(data)


TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20).filter(lambda topic: topic not in (".", ".."))
I64 = st.integers(-(2**63), 2**63 - 1)


@given(st.dictionaries(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), I64))
def test_offset_checkpoint_round_trips_in_order(offsets):
    read = parse_offset_checkpoint(format_offset_checkpoint(offsets))
    assert list(read.items()) == list(offsets.items())


@given(st.lists(st.tuples(st.integers(-1, 2**31 - 1), I64)))
def test_leader_epoch_checkpoint_round_trips(epochs):
    assert parse_leader_epochs(format_leader_epochs(epochs)) == epochs
