"""Object keys of the three layouts, taken apart and put together."""

from __future__ import annotations

import re
import string
import uuid
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.format.names import valid_topic_name
from kafkalog_spark.format.partition_metadata import uuid_from_text, uuid_to_text
from kafkalog_spark.log.tiered.remote_names import (
    Layout,
    RemoteFile,
    RemoteKey,
    RemoteSegment,
    TopicIdPartition,
    parse_remote_key,
    remote_key,
    remote_objects,
)

aiven_key = partial(remote_key, Layout.AIVEN)
local_tiered_key = partial(remote_key, Layout.LOCAL_TIERED)
parse_aiven_key = partial(parse_remote_key, Layout.AIVEN)
parse_local_tiered_key = partial(parse_remote_key, Layout.LOCAL_TIERED)

# ObjectKeyFactoryTest of Aiven's plugin
AIVEN = "someprefix/topic-MWJ6FHTfRYy67jzwZdeqSQ/7/00000000000000001234-tqimKeZwStOEOwRzT3L5oQ.log"
TOPIC_ID = uuid_from_text("MWJ6FHTfRYy67jzwZdeqSQ")
SEGMENT_ID = uuid_from_text("tqimKeZwStOEOwRzT3L5oQ")
LOCAL = "topic-7-MWJ6FHTfRYy67jzwZdeqSQ/00000000000000001234-tqimKeZwStOEOwRzT3L5oQ.log"
SEGMENT = RemoteSegment(TopicIdPartition("topic", TOPIC_ID, 7), SEGMENT_ID, 1234, 2000, (), 1, 0, 0, 0)

topics = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=40).filter(valid_topic_name)
segments = st.builds(
    RemoteSegment,
    st.builds(TopicIdPartition, topics, st.uuids(), st.integers(0, 2**31 - 1)),
    st.uuids(),
    st.integers(0, 2**63 - 1),
    *[st.just(0), st.just(()), *[st.just(0)] * 4],
)


def test_aivens_own_key() -> None:
    assert parse_aiven_key(AIVEN) == RemoteKey("someprefix/", SEGMENT.partition, 1234, SEGMENT_ID, RemoteFile.LOG)
    assert aiven_key(SEGMENT, RemoteFile.LOG, "someprefix/") == AIVEN
    assert {parse_aiven_key(AIVEN.replace(".log", suffix)).file for suffix in (".indexes", ".rsm-manifest")} == {  # type: ignore[union-attr]
        RemoteFile.INDEXES,
        RemoteFile.MANIFEST,
    }


@pytest.mark.parametrize(
    ("suffix", "file"),
    [
        (".index", RemoteFile.OFFSET_INDEX),
        (".timeindex", RemoteFile.TIME_INDEX),
        (".snapshot", RemoteFile.PRODUCER_SNAPSHOT),
        (".txnindex", RemoteFile.TRANSACTION_INDEX),
        (".leader-epoch-checkpoint", RemoteFile.LEADER_EPOCHS),
    ],
)
def test_aivens_objects_of_before_october_2023(suffix: str, file: RemoteFile) -> None:
    found = parse_aiven_key(AIVEN.replace(".log", suffix))
    assert found is not None
    assert found.file is file


def test_a_prefix_without_slash_belongs_to_the_topic_unless_it_is_given() -> None:
    key = aiven_key(SEGMENT, RemoteFile.LOG, "bucket/tier-")
    guessed, known = parse_aiven_key(key), parse_aiven_key(key, "bucket/tier-")
    assert guessed is not None
    assert known is not None
    assert (guessed.prefix, guessed.partition.topic) == ("bucket/", "tier-topic")
    assert (known.prefix, known.partition.topic) == ("bucket/tier-", "topic")
    assert parse_aiven_key(AIVEN, "otherprefix/") is None


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "topic-MWJ6FHTfRYy67jzwZdeqSQ",
        LOCAL,
        AIVEN.replace("/7/", "/07/"),
        AIVEN.replace("/7/", "/2147483648/"),
        AIVEN.replace("00000000000000001234", "0000000000000001234"),
        AIVEN.replace("00000000000000001234", "99999999999999999999"),
        AIVEN.replace(".log", ".logs"),
        AIVEN.replace(".log", ""),
        AIVEN.replace(".log", ".log.tmp"),
        AIVEN.replace("topic-", "to+pic-"),
        AIVEN.replace("topic-", "..-"),
        AIVEN.replace("MWJ6", "MWJ"),
    ],
)
def test_what_is_no_key_of_aivens(key: str) -> None:
    assert parse_aiven_key(key) is None


@given(segments, st.sampled_from(RemoteFile), st.sampled_from(["", "a/", "a/b-c/", "x-0/7/"]))
def test_aivens_keys_both_ways(segment: RemoteSegment, file: RemoteFile, prefix: str) -> None:
    key = aiven_key(segment, file, prefix)
    expected = (prefix, segment.partition, segment.start_offset, segment.segment_id, file)
    assert parse_aiven_key(key) == expected
    assert parse_aiven_key(key, prefix) == expected
    assert parse_local_tiered_key(key) is None
    # The expression that the plugin's authors give for their keys.
    theirs = r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<topicId>[A-Za-z0-9_-]{22})/(?P<partition>\d+)/(?P<start>\d{20})-.{22}\."
    if file in (RemoteFile.LOG, RemoteFile.INDEXES, RemoteFile.MANIFEST):
        found = re.search(theirs, key[len(prefix) :])
        assert found is not None
        assert (found["topic"], found["topicId"]) == (segment.partition.topic, uuid_to_text(segment.partition.topic_id))


@given(segments, st.sampled_from(RemoteFile), st.sampled_from(["", "a/", "a/b-c-0/"]))
def test_local_tiered_keys_both_ways(segment: RemoteSegment, file: RemoteFile, prefix: str) -> None:
    if file in (RemoteFile.MANIFEST, RemoteFile.INDEXES):
        with pytest.raises(KeyError):
            local_tiered_key(segment, file, prefix)
        return
    key = local_tiered_key(segment, file, prefix)
    expected = (prefix, segment.partition, segment.start_offset, segment.segment_id, file)
    assert parse_local_tiered_key(key) == expected
    assert parse_aiven_key(key) is None


def test_offsets_without_padding_are_of_older_releases() -> None:
    found = parse_local_tiered_key("t-0-MWJ6FHTfRYy67jzwZdeqSQ/1234-tqimKeZwStOEOwRzT3L5oQ.leader_epoch_checkpoint")
    assert found is not None
    assert (found.start_offset, found.file) == (1234, RemoteFile.LEADER_EPOCHS)


def test_objects_of_a_segment_are_gathered() -> None:
    other = SEGMENT.name.replace("1234", "1200")
    listing = [
        (aiven_key(SEGMENT, RemoteFile.LOG), 100),
        (aiven_key(SEGMENT, RemoteFile.MANIFEST), 50),
        (f"topic-MWJ6FHTfRYy67jzwZdeqSQ/7/{other}.log", 7),
        ("something else", 1),
        (LOCAL, 9),
    ]
    first, second = remote_objects(listing, Layout.AIVEN)
    assert (first.start_offset, first.missing) == (1200, frozenset({RemoteFile.MANIFEST}))
    assert (second.start_offset, second.missing) == (1234, frozenset())
    assert second.objects[RemoteFile.LOG] == (listing[0][0], 100)
    (local,) = remote_objects(listing, Layout.LOCAL_TIERED)
    assert (local.partition.partition, local.segment_id) == (7, SEGMENT_ID)
    assert RemoteFile.PRODUCER_SNAPSHOT in local.missing
    assert RemoteFile.TRANSACTION_INDEX not in local.missing


def test_ids_are_kafkas_uuids() -> None:
    assert uuid_to_text(uuid.UUID(int=0)) == "A" * 22
