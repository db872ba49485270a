"""Events of `__remote_log_metadata`: decoded, folded, damaged."""

from __future__ import annotations

import base64
import struct
import uuid
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptRemoteMetadata, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.tiered.remote_log_events import (
    PartitionDeleteState,
    PartitionDeletion,
    RemoteSegmentState,
    SegmentEvent,
    SegmentUpdate,
    decode_event,
    encode_event,
)
from kafkalog_spark.log.tiered.remote_log_state import NEXT_STATES, RemoteLogState
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition
from tests.log.helpers.damaged_bytes import damaged
from tests.log.tiered.golden_tiered import CLUSTERS, GoldenCluster
from tests.log.tiered.kafkas_rules import recorded
from tests.log.tiered.made_segments import PARTITION, segment

STARTED, FINISHED, DELETING, DELETED = RemoteSegmentState
SEGMENT_ID = uuid.UUID(int=77)
NO_TAGS = b"\0"
UNKNOWN_TAGS = b"\2" + b"\5\3abc" + b"\x80\1\0"  # tags 5 and 128
IDS = b"\7orders" + PARTITION.topic_id.bytes + struct.pack(">i", 3)


def event_bytes(tags: bytes = NO_TAGS, own_tags: bytes = NO_TAGS, version: bytes = b"\0") -> bytes:
    """apiKey 0: offsets 10 to 99 in epochs 4 and 6, custom metadata b"xy"; `tags` in every nested struct."""
    epochs = b"\3" + struct.pack(">iq", 4, 10) + tags + struct.pack(">iq", 6, 50) + tags
    return (
        b"\1\0" + version + IDS + tags + SEGMENT_ID.bytes + tags + struct.pack(">qqiqq", 10, 99, 7, 1111, 2222) + epochs
        + struct.pack(">i", 4321) + b"\3xy" + struct.pack(">b", 0) + own_tags
    )  # fmt: skip


def update_bytes(tags: bytes = NO_TAGS, state: int = 1, custom: bytes = b"\0") -> bytes:
    head = b"\1\1\0" + IDS + tags + SEGMENT_ID.bytes + tags
    return head + struct.pack(">iq", 8, 3333) + custom + struct.pack(">b", state) + tags


def deletion_bytes(tags: bytes = NO_TAGS, state: int = 2) -> bytes:
    return b"\1\2\0" + IDS + tags + struct.pack(">iq", 8, 3333) + struct.pack(">b", state) + tags


@pytest.mark.parametrize("tags", [NO_TAGS, UNKNOWN_TAGS])
def test_all_three_event_types_are_decoded(tags: bytes) -> None:
    event = decode_event(event_bytes(tags, tags))
    assert isinstance(event, SegmentEvent)
    found = event.segment
    assert (event.state, found.partition, found.segment_id) == (STARTED, TopicIdPartition(*PARTITION), SEGMENT_ID)
    assert (found.start_offset, found.end_offset, found.size, found.broker_id) == (10, 99, 4321, 7)
    assert (found.max_timestamp, found.event_timestamp, found.custom_metadata) == (1111, 2222, b"xy")
    assert found.leader_epochs == (EpochEntry(4, 10), EpochEntry(6, 50))
    assert decode_event(update_bytes(tags)) == SegmentUpdate(PARTITION, SEGMENT_ID, 8, 3333, None, FINISHED)
    assert decode_event(deletion_bytes(tags)) == PartitionDeletion(
        PARTITION, 8, 3333, PartitionDeleteState.DELETE_PARTITION_FINISHED
    )


@pytest.mark.parametrize(
    ("own_tags", "empty"),
    [
        (NO_TAGS, False),
        (b"\1\0\1\1", True),
        (b"\1\0\1\0", False),
        (b"\2\0\1\1\1\4\0\0\0\5", True),  # BrokerLeaderEpoch, of a later version
    ],
)
def test_tag_for_an_empty_transaction_index_is_decoded(own_tags: bytes, empty: bool) -> None:
    event = decode_event(event_bytes(own_tags=own_tags, version=b"\1"))
    assert isinstance(event, SegmentEvent)
    assert event.segment.transaction_index_empty is empty


@pytest.mark.parametrize(
    ("value", "position", "text"),
    [
        (b"", 0, "it ends early"),
        (event_bytes()[:20], 10, "it ends early"),
        (event_bytes() + b"x", len(event_bytes()), "1 bytes follow the message"),
        (b"\1\0\0\0", 3, "name is null"),
        (b"\1\0\0\3\xff\xff", 4, "not UTF-8"),
        (b"\x80\x80\x80\x80\x80\1", 0, "more than 32 bits"),
        (b"\xff\xff\xff\xff\x7f", 0, "more than 32 bits"),
        (update_bytes(state=4), len(update_bytes()) - 2, "expected 0 to 3"),
        (deletion_bytes(state=-1), len(deletion_bytes()) - 2, "expected 0 to 2"),
        (update_bytes(b"\2\1\0\1\0"), 33, "tag 1 follows tag 1"),
        (update_bytes(custom=b"\xff\xff\xff\xff\x0f"), 65, "custom_metadata of 4294967294 bytes"),
    ],
)
def test_damage_is_an_error_with_its_byte(value: bytes, position: int, text: str) -> None:
    with pytest.raises(CorruptRemoteMetadata, match=text) as caught:
        decode_event(value)
    assert caught.value.position == position


def test_array_longer_than_its_data_is_an_error() -> None:
    at = event_bytes().index(b"\3" + struct.pack(">iq", 4, 10))
    for announced, text, position in (
        (b"\0", "the array segment_leader_epochs is null", at),
        (b"\xff\xff\xff\xff\x0f", "an array of 4294967294 elements, but only 35 bytes are left", at + 5),
    ):
        with pytest.raises(CorruptRemoteMetadata, match=text) as caught:
            decode_event(event_bytes()[:at] + announced + event_bytes()[at + 1 :])
        assert caught.value.position == position


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"\2\0\0", "frame version 2"), (b"\1\3\0", "apiKey 3 .* snapshot files only"), (b"\1\x64\0", "apiKey 100")],
)
def test_unknown_types_and_versions_are_refused(value: bytes, text: str) -> None:
    with pytest.raises(UnsupportedFormat, match=text):
        decode_event(value)


@pytest.mark.parametrize("value", [event_bytes(), event_bytes(UNKNOWN_TAGS), update_bytes(), deletion_bytes()])
def test_any_damage_gives_an_event_or_our_error(value: bytes) -> None:
    for what, data in damaged(value):
        try:
            decode_event(data)
        except KafkalogError:
            pass
        except Exception as error:
            raise AssertionError(what) from error


@given(st.binary(max_size=120), st.sampled_from([b"\1\0\0", b"\1\1\0", b"\1\2\0", b""]))
def test_any_bytes_give_an_event_or_our_error(data: bytes, head: bytes) -> None:
    try:
        decode_event(head + data)
    except KafkalogError:
        pass


def test_events_of_kafkas_serde_are_decoded() -> None:
    """RemoteLogMetadataSerde of Kafka 4.3.0: also what no cluster was seen to write."""
    values = [base64.b64decode(data) for data, _ in recorded()["written"]]
    texts = [text for _, text in recorded()["written"]]
    first, second, changed, *deletions = map(decode_event, values)
    assert isinstance(first, SegmentEvent)
    found = first.segment
    assert (found.partition.topic, found.partition.partition) == ("t", 0)
    assert uuid_to_text(found.partition.topic_id) == "lZ6vvmajTWKDBUTV6SQAtQ"
    assert uuid_to_text(found.segment_id) == "adh9f8BMS4anaUnD8KWfWg"
    assert (found.start_offset, found.end_offset, found.size, found.broker_id) == (5, 1 << 40, 2**31 - 1, 7)
    assert (found.max_timestamp, found.event_timestamp) == (1714521600000, 1714521700000)
    assert (found.custom_metadata, first.state, found.transaction_index_empty) == (b"\1\2\3", FINISHED, False)
    assert found.leader_epochs == (EpochEntry(0, 5), EpochEntry(3, 700), EpochEntry(2**31 - 1, 800))
    assert second == SegmentEvent(replace(found, transaction_index_empty=True), FINISHED)
    assert changed == SegmentUpdate(found.partition, found.segment_id, 3, 1, b"\1\2\3", DELETING)
    assert deletions == [PartitionDeletion(found.partition, 2, 1714521800000, state) for state in PartitionDeleteState]
    for text, event in zip(texts, map(decode_event, values), strict=True):
        assert f"={event.state.name}" in text


def started(start: int = 0, end: int = 9, state: RemoteSegmentState = STARTED) -> SegmentEvent:
    return SegmentEvent(segment(start, end), state)


def update(of: SegmentEvent, state: RemoteSegmentState, time: int = 5, custom: bytes | None = None) -> SegmentUpdate:
    return SegmentUpdate(of.segment.partition, of.segment.segment_id, 9, time, custom, state)


def readable(*events: SegmentEvent | SegmentUpdate | PartitionDeletion) -> list[tuple[int, int]]:
    return sorted((part.start_offset, part.end_offset) for part in segments_of(RemoteLogState(events)))


def segments_of(state: RemoteLogState) -> list[RemoteSegment]:
    states = state.by_partition().get(PARTITION)
    return [] if states is None else list(states.readable.values())


def test_only_completely_copied_segments_are_readable() -> None:
    event = started()
    assert readable(event) == []
    assert readable(event, update(event, FINISHED)) == [(0, 9)]
    assert readable(event, update(event, FINISHED), update(event, DELETING)) == []
    assert readable(event, update(event, FINISHED), update(event, DELETING), update(event, DELETED)) == []
    assert readable(event, update(event, DELETING)) == []


def test_update_changes_broker_time_state_and_custom_metadata() -> None:
    event = started()
    state = RemoteLogState([event, update(event, FINISHED, 123, b"kept")])
    (found,) = segments_of(state)
    assert (found.broker_id, found.event_timestamp, found.custom_metadata) == (9, 123, b"kept")
    assert (found.start_offset, found.leader_epochs) == (event.segment.start_offset, event.segment.leader_epochs)


@pytest.mark.parametrize(("before", "after"), list(product([STARTED, FINISHED, DELETING], RemoteSegmentState)))
def test_invalid_state_transition_changes_nothing(before: RemoteSegmentState, after: RemoteSegmentState) -> None:
    event = started(state=before)
    state = RemoteLogState([event, update(event, after)])
    follows = after is before or after in NEXT_STATES[before]
    assert state.invalid_transitions == (0 if follows else 1)
    (now,) = [found.state for found in state.segments.values()] or [DELETED]
    assert now is (after if follows else before)


def test_repeated_events_change_nothing() -> None:
    event = started()
    done = update(event, FINISHED)
    assert readable(event, event, done, done) == [(0, 9)]
    state = RemoteLogState([event, done, event])  # it would begin again: ignored
    assert (state.invalid_transitions, len(segments_of(state))) == (1, 1)
    gone = RemoteLogState([event, done, update(event, DELETING), update(event, DELETED), update(event, DELETED)])
    assert (gone.invalid_transitions, gone.segments) == (0, {})


def test_update_of_an_unknown_segment_is_counted() -> None:
    state = RemoteLogState([update(started(), FINISHED)] * 150)
    assert (state.invalid_transitions, state.by_partition()) == (150, {})


@pytest.mark.parametrize("state", PartitionDeleteState)
def test_partition_that_is_being_deleted_is_not_readable(state: PartitionDeleteState) -> None:
    event = started()
    assert readable(event, update(event, FINISHED), PartitionDeletion(PARTITION, 1, 9, state)) == []


def test_started_and_deleted_segments_are_not_readable() -> None:
    done, begun, gone = started(0, 9), started(10, 19), started(20, 29)
    events: list[SegmentEvent | SegmentUpdate] = [
        done,
        update(done, FINISHED),
        begun,
        gone,
        update(gone, DELETING),
        update(gone, DELETED),
    ]
    states = RemoteLogState(events).by_partition()[PARTITION]
    assert set(states.readable) == {done.segment.segment_id}
    assert states.refused == {begun.segment.segment_id, gone.segment.segment_id}


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster.name)
def test_kafkas_events_are_written_byte_for_byte(cluster: GoldenCluster) -> None:
    values = cluster.event_values().values()
    assert values
    for value in values:
        assert encode_event(decode_event(value)) == value
