from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_broker.storage.compaction.legacy_batches import messages_in
from kafkalog_broker.storage.compaction.offset_map import ENTRY_SIZE, OffsetMap
from tests.broker.storage.helpers.map_probe import hash_of, latest_of
from tests.log.helpers.batch_builder import V2Record, encoded
from tests.log.helpers.legacy_builder import LegacyRecord, message_set

SECRET = (0x0706050403020100, 0x0F0E0D0C0B0A0908)


def records(*keys: bytes | None, first=0) -> np.ndarray:
    made = [V2Record(first + i, 0, key, b"v") for i, key in enumerate(keys)]
    return payload(encoded(made, first, 0))


def payload(data: bytes) -> np.ndarray:
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


def add(found: OffsetMap, *keys: bytes | None, first=0, from_offset=0) -> bool:
    data = records(*keys, first=first)
    units = np.array([[first, first + len(keys) - 1, len(keys)]], np.int64)
    return found.add_records(data, np.array([0]), np.array([len(data)]), units, from_offset)


def made(memory=1 << 16, load_factor=0.9, offsets=1000, **options) -> OffsetMap:
    return OffsetMap(memory, load_factor, offsets, **options)


# The first results of the reference implementation (vectors_sip128): key 00..0f, messages "", 00, 00 01, ...
VECTORS = (
    "a3817f04ba25a8e66df67214c7550293",
    "da87c1d86b99af44347659119b22fc45",
    "8177228da4a45dc7fca38bdef60affe4",
    "9c70b60c5267a94e5f33b6b02985ed51",
    "f88164c12d9c8faf7d0f6e7c7bcd5579",
    "1368875980776f8854527a07690e9627",
    "14eeca338b208613485ea0308fd7a15e",
    "a1f1ebbed8dbc153c0b84aa61ff08239",
    "3b62a9ba6258f5610f83e264f31497b4",
)


@pytest.mark.parametrize("size", range(len(VECTORS)))
def test_offset_map_hash_is_siphash_2_4_with_128_bits(size):
    assert hash_of(made(hash_seed=SECRET), bytes(range(size))).hex() == VECTORS[size]


def test_each_offset_map_has_its_own_hash_secret():
    assert hash_of(made(), b"key") != hash_of(made(), b"key")


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=200))
def test_offset_map_has_the_latest_offset_of_each_key(keys):
    found = made(memory=ENTRY_SIZE * 230)
    assert add(found, *keys, first=70)
    for key in keys:
        assert latest_of(found, key) == 70 + len(keys) - 1 - keys[::-1].index(key)
    assert latest_of(found, b"no such key " * 3) == -1
    assert len(found) == len(set(keys))
    assert found.latest_offset == 70 + len(keys) - 1


def test_offset_map_skips_records_without_a_key_and_below_the_first_offset():
    found = made()
    assert add(found, b"a", None, b"b", b"a", first=10, from_offset=11)
    assert (latest_of(found, b"a"), latest_of(found, b"b"), len(found)) == (13, 12, 2)


def test_full_offset_map_refuses_a_new_key_and_keeps_the_last_added_offset():
    found = made(memory=ENTRY_SIZE * 10, load_factor=0.5)
    assert add(found, b"0", b"1", b"2", b"3")
    assert not add(found, b"4", b"0", b"5", first=4)
    assert (len(found), found.latest_offset, latest_of(found, b"0"), latest_of(found, b"4")) == (5, 4, 0, 4)


def test_batch_without_records_advances_the_latest_offset_of_the_map():
    found = made()
    units = np.array([[5, 9, 0]], np.int64)
    none = np.array([0])
    assert found.add_records(payload(b""), none, none, units, 0)
    assert (found.latest_offset, len(found)) == (9, 0)
    found.advance(20)
    assert found.latest_offset == 20


def test_offset_map_size_is_limited_by_memory_and_by_the_number_of_offsets():
    assert len(made(memory=1 << 27, offsets=100).table) <= 113
    assert len(made(memory=ENTRY_SIZE * 50, offsets=10**9).table) == 50


def test_offset_map_has_room_for_one_key_per_offset():
    for offsets in range(1, 60):
        found = made(memory=1 << 20, offsets=offsets)
        assert add(found, *(b"%d" % i for i in range(offsets)))


@pytest.mark.parametrize("magic", [0, 1])
def test_offset_map_adds_the_keys_of_legacy_messages(magic):
    found = made()
    data = message_set(magic, [LegacyRecord(i, key, b"v") for i, key in enumerate((b"a", None, b"b", b"a"))])
    assert found.add_messages(payload(data), messages_in(payload(data), 0, len(data), magic, 100, 101))
    assert (latest_of(found, b"a"), latest_of(found, b"b"), found.latest_offset) == (103, 102, 103)


@pytest.mark.parametrize("cut", [1, 5, 9])
def test_truncated_batch_adds_no_key_and_advances_the_latest_offset(cut):
    data = records(b"a", b"b")[:-cut]
    units = np.array([[0, 1, 2]], np.int64)
    found = made()
    assert found.add_records(data, np.array([0]), np.array([len(data)]), units, 0)
    assert (len(found), found.latest_offset) == (0, 1)


def test_offset_map_without_room_for_a_key_is_refused():
    with pytest.raises(ValueError, match=r"log\.cleaner\.io\.buffer\.load\.factor"):
        made(memory=ENTRY_SIZE, load_factor=0.9)
