"""`consumer_offsets` and `groups` against DumpLogSegments --offsets-decoder, and against records made here."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.log_dir import LogDirs
from tests.golden_data import KAFKA_4_3, data_dir, golden_logs
from tests.log.helpers.batch_builder import V2Record, batch
from tests.log.helpers.damaged_log import TIME
from tests.log.tables.dumps import decoded
from tests.log.tables.record_dumps import OFFSETS
from tests.log.tables.test_batches import moment


def table(root: Path, name: str = "consumer_offsets", **asked: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = LogDirs.open(root).table(name, **asked).read_all().to_pylist()
    return rows


def test_committed_offsets_equal_those_of_kafkas_tool() -> None:
    ends = {log.partition: log.high_watermark for log in golden_logs(KAFKA_4_3, "groups", crashed=False)}
    said = decoded(OFFSETS)
    assert len(said) == 6
    rows = table(data_dir(), history=True)
    for row, record in zip(rows, said, strict=True):
        assert record.payload is not None
        assert row == {
            "group_id": record.key["group"],
            "topic": record.key["topic"],
            "partition": record.key["partition"],
            "offset": record.payload["offset"],
            "leader_epoch": record.payload["leaderEpoch"],
            "metadata": record.payload["metadata"],
            "committed_at": moment(record.payload["commitTimestamp"]),
            "expires_at": None,
            "topic_id": record.payload["topicId"],
            "log_end_offset": ends[record.key["partition"]],
            "lag": ends[record.key["partition"]] - record.payload["offset"],
            "source_partition": record.partition,
            "source_offset": record.offset,
            "deleted": False,
            "error": None,
        }
    latest = {(record.key["group"], record.key["partition"]): record.offset for record in said}
    assert {(row["group_id"], row["partition"]): row["source_offset"] for row in table(data_dir())} == latest


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value.encode())) + value.encode()


def offset_record(group: str, topic: str, partition: int, offset: int | None) -> tuple[bytes, bytes | None]:
    key = struct.pack(">h", 1) + text(group) + text(topic) + struct.pack(">i", partition)
    if offset is None:
        return key, None
    return key, struct.pack(">hqi", 3, offset, 7) + text("note") + struct.pack(">q", TIME)


def group_record(group: str, generation: int | None, members: int = 1) -> tuple[bytes, bytes | None]:
    """GroupMetadataValue 3."""
    key = struct.pack(">h", 2) + text(group)
    if generation is None:
        return key, None
    value = struct.pack(">h", 3) + text("consumer") + struct.pack(">i", generation) + text("range") + text("m0")
    value += struct.pack(">qi", TIME + 5, members)
    for number in range(members):
        value += text(f"m{number}") + text(None) + text("client") + text("/10.0.0.1") + struct.pack(">ii", 300, 45)
        value += struct.pack(">i", 2) + b"ab" + struct.pack(">i", 0)
    return key, value


def write(root: Path, *batches: bytes, topic: str = "__consumer_offsets-3") -> Path:
    directory = root / topic
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(b"".join(batches))
    return root


def of_records(first: int, *records: tuple[bytes | None, bytes | None], **fields: Any) -> bytes:
    made = [V2Record(first + at, TIME + at, key, value, ()) for at, (key, value) in enumerate(records)]
    return batch(first, made, **fields)


def test_superseded_commits_appear_only_with_history(tmp_path: Path) -> None:
    write(
        tmp_path,
        of_records(
            0,
            offset_record("g", "orders", 0, 5),
            offset_record("g", "orders", 0, 9),
            offset_record("g", "orders", 1, 4),
            offset_record("h", "orders", 0, 1),
            offset_record("h", "orders", 0, None),
            offset_record("g", "orders", 1, None),
            offset_record("g", "orders", 1, 6),
        ),
    )
    write(tmp_path, of_records(0, *[(b"k", b"v")] * 12), topic="orders-0")
    rows = table(tmp_path, columns=["group_id", "partition", "offset", "lag", "log_end_offset", "leader_epoch"])
    assert [tuple(row.values()) for row in rows] == [("g", 0, 9, 3, 12, 7), ("g", 1, 6, None, None, 7)]
    shown = table(tmp_path, history=True, columns=["source_offset", "offset", "deleted", "source_partition"])
    assert [tuple(row.values()) for row in shown] == [
        (0, 5, False, 3), (1, 9, False, 3), (2, 4, False, 3), (3, 1, False, 3), (4, None, True, 3), (5, None, True, 3),
        (6, 6, False, 3),
    ]  # fmt: skip


def test_transactional_offset_commits_count_only_when_committed(tmp_path: Path) -> None:
    def commit(first: int, producer: int, offset: int) -> bytes:
        record = offset_record("g", "orders", producer, offset)
        return of_records(first, record, producer_id=producer, producer_epoch=0, base_sequence=0, attributes=0x10)

    def marker(first: int, producer: int, kind: int) -> bytes:
        record = (struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
        return of_records(first, record, producer_id=producer, producer_epoch=0, base_sequence=-1, attributes=0x30)

    write(
        tmp_path,
        commit(0, 1, 10),
        commit(1, 2, 20),
        commit(2, 3, 30),  # never ends
        marker(3, 1, 1),
        marker(4, 2, 0),
        of_records(5, offset_record("g", "orders", 9, 90)),
    )
    assert [(row["partition"], row["offset"]) for row in table(tmp_path, history=True)] == [(1, 10), (9, 90)]


def test_group_row_has_its_last_state_and_lag(tmp_path: Path) -> None:
    write(
        tmp_path,
        of_records(
            0,
            group_record("g", 1),
            group_record("g", 2, members=2),
            group_record("gone", 1),
            group_record("gone", None),
            offset_record("g", "orders", 0, 9),
            offset_record("g", "elsewhere", 0, 9),
            offset_record("only", "orders", 0, 12),
        ),
    )
    write(tmp_path, of_records(0, *[(b"k", b"v")] * 12), topic="orders-0")
    group, only = table(tmp_path, "groups")
    member: dict[str, Any] = {"group_instance_id": None, "client_id": "client", "client_host": "/10.0.0.1"}
    member |= {"rebalance_timeout_ms": 300, "session_timeout_ms": 45}
    assert group == {
        "group_id": "g", "kind": "classic", "generation": 2, "protocol_type": "consumer", "protocol": "range",
        "leader": "m0", "state_since": moment(TIME + 5), "member_count": 2, "committed_partitions": 2, "lag": 3,
        "members": [{"member_id": "m0"} | member, {"member_id": "m1"} | member],
        "source_partition": 3, "source_offset": 1, "deleted": False, "error": None,
    }  # fmt: skip
    assert (only["group_id"], only["kind"], only["lag"], only["member_count"]) == ("only", None, 0, 0)
    history = table(tmp_path, "groups", history=True)
    assert [(row["group_id"], row["generation"], row["deleted"]) for row in history] == [
        ("g", 1, False), ("g", 2, False), ("gone", 1, False), ("gone", None, True),
    ]  # fmt: skip


def test_groups_of_new_protocols_have_type_epoch_and_members(tmp_path: Path) -> None:
    def member(version: int, group: str, name: str, value: bytes | None) -> tuple[bytes, bytes | None]:
        return struct.pack(">h", version) + text(group) + text(name), value

    records = []
    for version, of_members, name in ((3, 5, "c"), (11, 10, "s"), (17, 19, "st")):
        records += [
            (struct.pack(">h", version) + text(name), struct.pack(">hi", 0, 4) + b"\0"),
            member(of_members, name, "a", b"\0\0"),
            member(of_members, name, "b", b"\0\0"),
            member(of_members, name, "a", None),
        ]
    write(tmp_path, of_records(0, *records))
    rows = table(tmp_path, "groups", columns=["group_id", "kind", "generation", "member_count"])
    assert [tuple(row.values()) for row in rows] == [
        ("c", "consumer", 4, 1),
        ("s", "share", 4, 1),
        ("st", "streams", 4, 1),
    ]


def test_undecodable_record_is_a_row_with_the_reason(tmp_path: Path) -> None:
    key, value = offset_record("g", "orders", 0, 5)
    assert value is not None
    write(tmp_path, of_records(0, (key, value[:6]), (b"\0\1\0\7x", b""), (key, struct.pack(">h", 9)), (None, b"")))
    rows = table(tmp_path, history=True, columns=["source_offset", "group_id", "error"])
    of_key = "a key of __consumer_offsets"
    assert [tuple(row.values()) for row in rows] == [
        (0, "g", "OffsetCommitValue: it ends early, at byte 2 of 6"),
        (1, None, f"{of_key}: group of 7 bytes, but only 1 bytes are left, at byte 4 of 5"),
        (2, "g", "OffsetCommitValue of version 9, expected 0 to 4"),
        (3, None, f"{of_key}: it ends early, at byte 0 of 0"),
    ]


def test_arbitrary_record_bytes_do_not_fail_the_table(tmp_path: Path) -> None:
    """Cut anywhere, or with a byte changed: a row, with an error or without."""
    made = [offset_record("group", "orders", 0, 5), group_record("group", 3, members=2)]
    records: list[tuple[bytes | None, bytes | None]] = []
    for key, value in made:
        assert value is not None
        records += [(key[:size], value) for size in range(len(key))]
        records += [(key, value[:size]) for size in range(len(value))]
        records += [(key, value[:at] + bytes([value[at] ^ 0xFF]) + value[at + 1 :]) for at in range(len(value))]
    write(tmp_path, of_records(0, *records))
    dirs = LogDirs.open(tmp_path)  # not as Python values, which have no year 200,000
    assert dirs.table("groups").read_all().num_rows
    read = dirs.table("groups", history=True).read_all().num_rows
    assert read + dirs.table("consumer_offsets", history=True).read_all().num_rows > len(records) // 2


def test_topic_option_and_history_are_refused_where_they_do_not_apply() -> None:
    dirs = LogDirs.open(data_dir())
    with pytest.raises(
        OptionError, match="the table 'groups' cannot be narrowed to topics; leave the topic out and filt"
    ):
        dirs.table("groups", "segments")
    with pytest.raises(OptionError, match="the table 'batches' has no history; these have one: consumer_offsets, gr"):
        dirs.table("batches", history=True)
