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
from kafkalog_spark.log.tiered.object_keys import (
    Layout,
    RemoteFile,
    RemoteObjects,
    group_by_segment,
    parse_aiven_topic_dir,
    parse_partition_number,
    remote_directory,
    remote_key,
)
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition

aiven_key = partial(remote_key, Layout.AIVEN)
local_tiered_key = partial(remote_key, Layout.LOCAL_TIERED)

# ObjectKeyFactoryTest of Aiven's plugin
AIVEN = "someprefix/topic-MWJ6FHTfRYy67jzwZdeqSQ/7/00000000000000001234-tqimKeZwStOEOwRzT3L5oQ.log"
NAME = "00000000000000001234-tqimKeZwStOEOwRzT3L5oQ"
ID = "MWJ6FHTfRYy67jzwZdeqSQ"
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


def parsed(layout: Layout, *names: str) -> list[RemoteObjects]:
    return group_by_segment(names, layout, SEGMENT.partition)


def test_key_of_aivens_tests_is_parsed_and_formatted() -> None:
    assert aiven_key(SEGMENT, RemoteFile.LOG, "someprefix/") == AIVEN
    _, topic, number, name = AIVEN.split("/")
    assert (parse_aiven_topic_dir(topic), parse_partition_number(number)) == (("topic", TOPIC_ID), 7)
    others = [name.replace(".log", suffix) for suffix in (".indexes", ".rsm-manifest")]
    objects = {RemoteFile.LOG: name, RemoteFile.INDEXES: others[0], RemoteFile.MANIFEST: others[1]}
    assert parsed(Layout.AIVEN, name, *others) == [
        RemoteObjects(Layout.AIVEN, SEGMENT.partition, 1234, SEGMENT_ID, objects)
    ]


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
def test_aiven_objects_from_before_october_2023_are_parsed(suffix: str, file: RemoteFile) -> None:
    (found,) = parsed(Layout.AIVEN, NAME + suffix)
    assert found.objects == {file: NAME + suffix}


def test_prefix_without_slash_belongs_to_the_topic_unless_it_is_given() -> None:
    topic = aiven_key(SEGMENT, RemoteFile.LOG, "bucket/tier-").split("/")[1]
    assert parse_aiven_topic_dir(topic) == ("tier-topic", TOPIC_ID)
    assert parse_aiven_topic_dir(topic, "tier-") == ("topic", TOPIC_ID)
    assert parse_aiven_topic_dir(topic, "other-") is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        NAME.replace("00000000000000001234", "0000000000000001234") + ".log",
        NAME.replace("00000000000000001234", "99999999999999999999") + ".log",
        f"{NAME}.logs",
        NAME,
        f"{NAME}.log.tmp",
        NAME.replace("tqim", "tqi") + ".log",
    ],
)
def test_other_names_are_no_aiven_objects(name: str) -> None:
    assert parsed(Layout.AIVEN, name) == []


@pytest.mark.parametrize("number", ["07", "2147483648", "", "-1", "x"])
def test_other_names_are_no_aiven_partitions(number: str) -> None:
    assert parse_partition_number(number) is None


@pytest.mark.parametrize(
    "name", [f"to+pic-{ID}", f"..-{ID}", f"topic-{ID[1:]}", "topic", LOCAL.partition("/")[0].replace("topic", "to+")]
)
def test_other_names_are_no_aiven_topics(name: str) -> None:
    assert parse_aiven_topic_dir(name) is None


@given(segments, st.sampled_from(RemoteFile), st.sampled_from(["", "a/", "a/b-c/", "x-0/7/"]))
def test_aiven_keys_round_trip(segment: RemoteSegment, file: RemoteFile, prefix: str) -> None:
    key = aiven_key(segment, file, prefix)
    directory, _, name = key.rpartition("/")
    assert directory == remote_directory(Layout.AIVEN, segment.partition, prefix)
    (found,) = parsed(Layout.AIVEN, name)
    assert (found.start_offset, found.segment_id, found.objects) == (
        segment.start_offset, segment.segment_id, {file: name},
    )  # fmt: skip
    # The expression that the plugin's authors give for their keys.
    theirs = r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<topicId>[A-Za-z0-9_-]{22})/(?P<partition>\d+)/(?P<start>\d{20})-.{22}\."
    if file in (RemoteFile.LOG, RemoteFile.INDEXES, RemoteFile.MANIFEST):
        match = re.search(theirs, key[len(prefix) :])
        assert match is not None
        assert (match["topic"], match["topicId"]) == (segment.partition.topic, uuid_to_text(segment.partition.topic_id))


@given(segments, st.sampled_from(RemoteFile), st.sampled_from(["", "a/", "a/b-c-0/"]))
def test_local_tiered_keys_round_trip(segment: RemoteSegment, file: RemoteFile, prefix: str) -> None:
    if file in (RemoteFile.MANIFEST, RemoteFile.INDEXES):
        with pytest.raises(KeyError):
            local_tiered_key(segment, file, prefix)
        return
    directory, _, name = local_tiered_key(segment, file, prefix).rpartition("/")
    assert directory == remote_directory(Layout.LOCAL_TIERED, segment.partition, prefix)
    (found,) = parsed(Layout.LOCAL_TIERED, name)
    assert (found.start_offset, found.segment_id, found.objects) == (
        segment.start_offset, segment.segment_id, {file: name},
    )  # fmt: skip


def test_offsets_without_padding_of_older_releases_are_parsed() -> None:
    (found,) = parsed(Layout.LOCAL_TIERED, "1234-tqimKeZwStOEOwRzT3L5oQ.leader_epoch_checkpoint")
    assert (found.start_offset, *found.objects) == (1234, RemoteFile.LEADER_EPOCHS)


def test_objects_of_a_segment_are_grouped() -> None:
    other = SEGMENT.name.replace("1234", "1200")
    names = (f"{NAME}.log", f"{NAME}.rsm-manifest", f"{other}.log", "something else")
    first, second = parsed(Layout.AIVEN, *names)
    assert (first.start_offset, first.missing_files) == (1200, frozenset({RemoteFile.MANIFEST}))
    assert (second.start_offset, second.missing_files) == (1234, frozenset())
    assert second.objects[RemoteFile.LOG] == names[0]
    (local,) = parsed(Layout.LOCAL_TIERED, f"{NAME}.log")
    assert RemoteFile.PRODUCER_SNAPSHOT in local.missing_files
    assert RemoteFile.TRANSACTION_INDEX not in local.missing_files


def test_ids_are_formatted_like_kafkas_uuids() -> None:
    assert uuid_to_text(uuid.UUID(int=0)) == "A" * 22
