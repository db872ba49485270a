"""Keys of lost records: those before the damage of each batch, and no invented ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_spark.log.repair.lost_keys import MAX_KEYS, LostKeys, read_lost_keys
from kafkalog_spark.log.repair.report import KEY_BYTES, key_text
from tests.log.helpers.batch_builder import CODECS, V2Record, batch
from tests.log.helpers.damaged_log import TIME, open_log, patched, write_segments


def made(first: int, keys: list[bytes | None], codec: int = 0) -> bytes:
    return batch(first, [V2Record(first + n, TIME, key, b"v" * 20) for n, key in enumerate(keys)], codec=codec)


def found(root: Path, data: bytes) -> LostKeys:
    with open_log(write_segments(root, {0: data})).open_segment(0) as file:
        return read_lost_keys(file, 0, file.size)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_lost_keys_of_decodable_batches_are_complete(codec: int, tmp_path: Path) -> None:
    keys, records = found(tmp_path, made(0, [b"a", b"b", None, b"a"], codec) + made(4, [b"c"], codec))
    assert (list(keys), records) == ([b"a", b"b", b"c"], 5)


def test_lost_keys_end_at_the_first_malformed_record(tmp_path: Path) -> None:
    whole = made(0, [b"key-%d" % n for n in range(10)])
    at = whole.index(b"key-6") - 4
    keys, _ = found(tmp_path, patched(whole, at, b"\xff\xff\xff") + made(10, [b"next"]))
    assert list(keys)[:5] == [b"key-%d" % n for n in range(5)]
    assert b"key-7" not in keys
    assert list(keys)[-1] == b"next"


def test_batch_with_a_destroyed_length_has_no_lost_keys(tmp_path: Path) -> None:
    assert found(tmp_path, patched(made(0, [b"a"]), 8, b"\x7f\xff\xff\xff")) == ((), 0)
    assert found(tmp_path, bytes(500)) == ((), 0)
    assert found(tmp_path, b"") == ((), 0)


def test_number_of_reported_keys_is_limited(tmp_path: Path) -> None:
    keys, records = found(tmp_path, made(0, [b"%d" % n for n in range(MAX_KEYS + 50)]))
    assert (len(keys), records) == (MAX_KEYS, MAX_KEYS + 50)


def test_keys_that_are_not_printable_utf8_are_shown_in_hex() -> None:
    assert [key_text(key) for key in (b"user-42", "ü".encode(), b"\xff\x00", b"a\nb")] == [
        "user-42", "ü", "0xff00", "0x610a62",
    ]  # fmt: skip


def test_large_key_is_reported_by_its_first_bytes(tmp_path: Path) -> None:
    keys, _ = found(tmp_path, made(0, [b"k" * 100_000]))
    assert [len(key) for key in keys] == [KEY_BYTES + 1]
    assert [key_text(key) for key in keys] == ["k" * KEY_BYTES + "..."]
    assert key_text(b"k" * KEY_BYTES) == "k" * KEY_BYTES
    assert key_text(b"k" * (KEY_BYTES - 1) + "ü".encode()) == "k" * (KEY_BYTES - 1) + "..."
    assert key_text(b"\xff" * 1000) == "0x" + "ff" * KEY_BYTES + "..."
