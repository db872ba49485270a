"""What a stream does when its partitions are not what they were: fail with the connector's words and leave the
checkpoint as it is, or with failOnDataLoss=false warn and go on, never with a row twice.
"""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import DataLoss, KafkalogError, MalformedOffsets, NotALogDirectory
from kafkalog_spark.format.checkpoint import LOG_START_OFFSET_CHECKPOINT, write_offset_checkpoint
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    read_partition_metadata,
    uuid_to_text,
    write_partition_metadata,
)
from tests.source.helpers.made_logs import append, delete_first_segment, delete_partition, numbers
from tests.source.helpers.stream_driver import Checkpoint, Crash, Query

BY_TASKS: Any = {"minPartitions": 1}  # the rows of a small batch come with its plan otherwise
TEXT = "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by "


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    """Topic t: "0" to "29" in three segments of ten."""
    make(tmp_path / "logs", numbers(0, 30))
    return tmp_path / "logs"


def make(log_dir: Path, values: list[str], topic: str = "t", partition: int = 0) -> None:
    """Create a topic as a broker does, with an id of its own; ten records in a segment."""
    for start in range(0, len(values), 10):
        append(log_dir, topic, partition, values[start : start + 10], batch=2, roll_first=start > 0)
    path = log_dir / f"{topic}-{partition}" / PARTITION_METADATA_FILE
    write_partition_metadata(path, uuid.uuid4())


def segment(log_dir: Path, base_offset: int) -> Path:
    return log_dir / "t-0" / f"{base_offset:020d}.log"


def lost(run: Callable[[], object]) -> str:
    with pytest.raises(DataLoss) as caught:
        run()
    assert TEXT in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value).partition("Reason: ")[2]


def started(log_dir: Path, **options: Any) -> Query:
    query = Query(log_dir, startingOffsets="earliest", **options)
    query.trigger()
    return query


def test_recreated_topic_fails_the_query_and_keeps_the_checkpoint(topic: Path) -> None:
    query = started(topic)
    before = list(query.checkpoint.offsets)
    delete_partition(topic, "t", 0)
    make(topic, numbers(100, 105))
    reason = lost(query.trigger)
    assert reason.startswith("Partition t-0 offset was changed from 30 to 5. This could either be a user error")
    assert "Topic t was deleted and created again: its id was " in reason
    assert query.checkpoint.offsets == before
    assert lost(Query(topic, checkpoint=query.checkpoint).trigger).startswith(
        "Partition t-0 offset was changed from 30"
    )


def test_recreated_topic_longer_than_the_old_one_is_detected_by_its_id(topic: Path) -> None:
    query = started(topic)
    delete_partition(topic, "t", 0)
    make(topic, numbers(100, 150))
    assert lost(query.trigger).startswith("Topic t was deleted and created again: its id was ")


@pytest.mark.parametrize("count", [5, 30, 50])
def test_recreated_topic_is_read_from_its_beginning_without_fail_on_data_loss(
    topic: Path, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    query = started(topic, failOnDataLoss=False)
    delete_partition(topic, "t", 0)
    make(topic, numbers(100, 100 + count))
    with caplog.at_level(logging.WARNING, "kafkalog_spark"):
        assert query.trigger() == [[]]
    assert query.end == {"t": {"0": 0}}
    assert caplog.text.count("was deleted and created again") == 1
    assert query.trigger() == [numbers(100, 100 + count)]
    assert query.trigger() == []


@pytest.mark.parametrize("count", [5, 30, 50])
def test_topic_recreated_while_no_query_ran_is_detected_by_its_id(
    topic: Path, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = started(topic).checkpoint
    before = list(checkpoint.offsets)
    delete_partition(topic, "t", 0)
    make(topic, numbers(100, 100 + count))
    assert "Topic t was deleted and created again: its id was " in lost(Query(topic, checkpoint=checkpoint).trigger)
    assert checkpoint.offsets == before
    forgiving = Query(topic, checkpoint=checkpoint, failOnDataLoss=False)
    assert forgiving.trigger() == [[]], "the position moves to the start of the new topic"
    assert forgiving.trigger() == [numbers(100, 100 + count)]
    assert caplog.text.count("was deleted and created again") == 1


def test_topic_recreated_before_a_logged_batch_adds_no_record_to_it(topic: Path) -> None:
    query = started(topic, maxOffsetsPerTrigger=10)
    query.crash_before = "planning"
    with pytest.raises(Crash):
        query.trigger()
    delete_partition(topic, "t", 0)
    make(topic, numbers(100, 150))
    assert "Topic t was deleted and created again" in lost(Query(topic, checkpoint=query.checkpoint).trigger)
    forgiving = Query(topic, checkpoint=query.checkpoint, failOnDataLoss=False)
    assert [forgiving.trigger() for _ in range(3)] == [[[]], [[]], [numbers(100, 150)]]


def test_checkpoint_without_topic_ids_is_continued_and_gets_them_with_its_next_batch(topic: Path) -> None:
    checkpoint = Checkpoint(['{"t":{"0":20}}'], 1)  # as Spark's Kafka source writes it
    query = Query(topic, checkpoint=checkpoint)
    assert query.trigger() == [numbers(20, 30)]
    topic_id = read_partition_metadata(topic / "t-0" / PARTITION_METADATA_FILE)
    assert topic_id is not None
    assert json.loads(checkpoint.offsets[-1]) == {"t": {"0": 30}, f"t@{uuid_to_text(topic_id)}": {}}
    assert Query(topic, checkpoint=checkpoint).trigger() == []


def test_query_that_has_read_everything_reports_its_end_as_the_latest_offset(topic: Path) -> None:
    query = started(topic)
    again = Query(topic, checkpoint=query.checkpoint)
    assert again.trigger() == []
    for each in (query, again):
        assert json.dumps(each.reader.reportLatestOffset()) == query.checkpoint.offsets[-1]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("by", ["subscribe", "subscribePattern", "assign"])
def test_topics_absent_at_one_trigger_keep_their_position(topic: Path, by: str, restarted: bool) -> None:
    append(topic, "u", 0, numbers(50, 52))
    options: Any = {by: {"subscribe": "t", "subscribePattern": "^t", "assign": '{"t":[0]}'}[by]}
    query = started(topic, failOnDataLoss=False, **options)
    before = list(query.checkpoint.offsets)
    (topic / "t-0").rename(topic.with_name("t-0"))
    assert query.trigger() == []
    if restarted:
        query = Query(topic, checkpoint=query.checkpoint, failOnDataLoss=False, **options)
        assert query.trigger() == []
    assert query.checkpoint.offsets == before
    topic.with_name("t-0").rename(topic / "t-0")
    assert query.trigger() == []
    append(topic, "t", 0, numbers(30, 33))
    assert query.trigger() == [numbers(30, 33)]


def test_named_topic_that_comes_back_with_its_id_continues_although_others_were_read_meanwhile(topic: Path) -> None:
    append(topic, "u", 0, numbers(50, 52))
    query = started(topic, failOnDataLoss=False, subscribe="t,u")
    (topic / "t-0").rename(topic.with_name("t-0"))
    append(topic, "u", 0, numbers(52, 54))
    assert query.trigger() == [numbers(52, 54)]
    assert query.end == {"t": {"0": 30}, "u": {"0": 4}}
    topic.with_name("t-0").rename(topic / "t-0")
    append(topic, "t", 0, numbers(30, 33))
    again = Query(topic, checkpoint=query.checkpoint, subscribe="t,u")
    assert again.trigger() == [numbers(30, 33)]


@pytest.mark.parametrize("step", ["planning", "reading", "commit"])
def test_restarted_batch_of_a_recreated_topic_moves_back_again(topic: Path, step: str) -> None:
    query = started(topic, failOnDataLoss=False)
    delete_partition(topic, "t", 0)
    make(topic, numbers(100, 150))
    query.crash_before = step
    with pytest.raises(Crash):
        query.trigger()
    again = Query(topic, checkpoint=query.checkpoint, failOnDataLoss=False)
    assert again.trigger() == [[]]
    assert again.trigger() == [numbers(100, 150)]


def test_recreated_empty_topic_is_no_data_loss(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").touch()
    make(tmp_path, [])
    query = started(tmp_path)
    delete_partition(tmp_path, "t", 0)
    make(tmp_path, numbers(0, 5))
    assert query.trigger() == [numbers(0, 5)]


def test_truncated_log_fails_the_query_or_continues_with_new_records(topic: Path) -> None:
    for fail in (True, False):
        query = Query(topic, checkpoint=Checkpoint(['{"t": {"0": 37}}'], 1), failOnDataLoss=fail)
        if fail:
            assert lost(query.trigger).startswith("Partition t-0 offset was changed from 37 to 30. ")
        else:
            assert query.trigger() == [[]]
            append(topic, "t", 0, numbers(30, 33))
            assert query.trigger() == [numbers(30, 33)]


@pytest.mark.parametrize("by", ["subscribe", "subscribePattern", "assign"])
def test_deleted_topic_is_data_loss(topic: Path, by: str, caplog: pytest.LogCaptureFixture) -> None:
    append(topic, "u", 0, numbers(50, 52))
    chosen = {"subscribe": "t,u", "subscribePattern": "t|u", "assign": '{"t":[0],"u":[0]}'}[by]
    query = started(topic, **{by: chosen})
    delete_partition(topic, "t", 0)
    assert lost(query.trigger) == "Partitions Set(t-0) have been deleted."
    assert query.end == {"t": {"0": 30}, "u": {"0": 2}}
    append(topic, "u", 0, numbers(52, 54))
    forgiving = Query(topic, checkpoint=query.checkpoint, failOnDataLoss=False, **{by: chosen})
    assert forgiving.trigger() == [numbers(52, 54)]
    assert forgiving.end["u"] == {"0": 4}
    assert "Partitions Set(t-0) have been deleted." in caplog.text
    for number in range(54, 57):
        append(topic, "u", 0, numbers(number, number + 1))
        assert forgiving.trigger() == [numbers(number, number + 1)], "the query continues with the others"
    make(topic, numbers(100, 105))
    rows = [row for _ in range(2) for batch in forgiving.trigger() for row in batch]
    assert rows == numbers(100, 105), "it is a new topic now"
    assert forgiving.trigger() == []


@pytest.mark.parametrize("fail", [True, False])
def test_topic_deleted_before_a_logged_batch_is_data_loss(
    topic: Path, fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    append(topic, "u", 0, numbers(50, 52))
    query = started(topic, subscribePattern="t|u")
    append(topic, "t", 0, numbers(30, 33))
    append(topic, "u", 0, numbers(52, 54))
    query.crash_before = "planning"
    with pytest.raises(Crash):
        query.trigger()
    delete_partition(topic, "t", 0)
    again = Query(topic, checkpoint=query.checkpoint, subscribePattern="t|u", failOnDataLoss=fail)
    if fail:
        assert lost(again.trigger) == "Partitions Set(t-0) have been deleted."
    else:
        assert again.trigger() == [numbers(52, 54)]
        assert "Partitions Set(t-0) have been deleted." in caplog.text


def test_topic_marked_for_deletion_counts_as_deleted(topic: Path) -> None:
    query = started(topic, subscribe="t")
    (topic / "t-0").rename(topic / f"t-0.{uuid.uuid4().hex}-delete")
    assert lost(query.trigger) == "Partitions Set(t-0) have been deleted."


@pytest.mark.local_only("an empty directory is nothing in a bucket")
def test_missing_log_directory_is_not_taken_for_deleted_topics(topic: Path) -> None:
    query = started(topic, failOnDataLoss=False)
    hidden = topic.with_name("hidden")
    topic.rename(hidden)
    for _ in range(2):
        with pytest.raises(NotALogDirectory, match="does not exist"):
            query.trigger()
    topic.mkdir()  # a mount point with nothing mounted
    with pytest.raises(NotALogDirectory, match="is not a Kafka log directory"):
        query.trigger()
    topic.rmdir()
    hidden.rename(topic)
    append(topic, "t", 0, numbers(30, 33))
    assert Query(topic, checkpoint=query.checkpoint).trigger() == [numbers(30, 33)]


def test_retention_ahead_of_the_query_is_data_loss(topic: Path, caplog: pytest.LogCaptureFixture) -> None:
    query = started(topic, maxOffsetsPerTrigger=5)
    assert query.end == {"t": {"0": 5}}
    delete_first_segment(topic, "t", 0)
    reason = "Could not read records in offset [5, 30) for topic partition t-0: the log begins at offset 10."
    assert lost(query.trigger) == reason
    assert len(query.checkpoint.offsets) == 1
    forgiving = Query(topic, checkpoint=query.checkpoint, maxOffsetsPerTrigger=5, failOnDataLoss=False)
    assert forgiving.trigger() == [numbers(10, 15)]
    assert reason in caplog.text
    delete_first_segment(topic, "t", 0)
    assert forgiving.trigger() == [numbers(20, 25)]


def test_deleted_records_still_in_the_segment_are_data_loss(topic: Path) -> None:
    query = started(topic, maxOffsetsPerTrigger=5)
    write_offset_checkpoint(topic / LOG_START_OFFSET_CHECKPOINT, {("t", 0): 12})
    assert "the log begins at offset 12" in lost(query.trigger)
    forgiving = Query(topic, checkpoint=query.checkpoint, failOnDataLoss=False)
    assert forgiving.trigger() == [numbers(12, 30)]


def test_retention_between_planning_and_reading_is_data_loss(topic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(topic, "t", 0, numbers(30, 31))
    for fail in (True, False):
        query = Query(topic, checkpoint=Checkpoint(['{"t": {"0": 2}}'], 1), failOnDataLoss=fail, **BY_TASKS)
        original = query._crash

        def delete(step: str, original: Callable[[str], None] = original) -> None:
            original(step)
            if step == "reading" and segment(topic, 0).exists():
                delete_first_segment(topic, "t", 0)

        monkeypatch.setattr(query, "_crash", delete)
        shutil.copytree(topic, topic.with_name("copy"))
        if fail:
            with pytest.raises(DataLoss, match=r"t-0 .*records in \[2, 10\) are gone"):
                query.trigger()
            assert query.checkpoint.committed == 1
        else:
            assert query.trigger() == [numbers(10, 31)]
        shutil.rmtree(topic)
        topic.with_name("copy").rename(topic)


def test_first_batch_from_earliest_starts_at_the_log_start_offset(topic: Path) -> None:
    query = Query(topic, startingOffsets="earliest", crash_before="reading")
    with pytest.raises(Crash):
        query.trigger()
    delete_first_segment(topic, "t", 0)
    assert Query(topic, checkpoint=query.checkpoint, startingOffsets="earliest").trigger() == [numbers(10, 30)]


@pytest.mark.parametrize("again", [False, True])
def test_topic_deleted_between_planning_and_reading_is_data_loss(
    topic: Path, again: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(topic, topic.with_name("copy"))
    for fail in (True, False):
        query = Query(topic, startingOffsets="earliest", failOnDataLoss=fail, **BY_TASKS)

        def delete(step: str) -> None:
            if step == "reading":
                delete_partition(topic, "t", 0)
                if again:
                    make(topic, numbers(100, 150))

        monkeypatch.setattr(query, "_crash", delete)
        reason = "Topic t was deleted and created again" if again else "Partitions Set(t-0) have been deleted."
        if fail:
            assert lost(query.trigger).startswith(reason)
            assert query.checkpoint.committed == 0
        else:
            assert query.trigger() == [[]]
            assert reason in caplog.text
        shutil.rmtree(topic)
        shutil.copytree(topic.with_name("copy"), topic)


def test_new_partition_not_starting_at_offset_0_is_data_loss(topic: Path) -> None:
    query = started(topic)
    make(topic, numbers(50, 70), partition=1)
    delete_first_segment(topic, "t", 1)
    assert lost(query.trigger) == "Added partition t-1 starts from 10 instead of 0."
    assert query.end == {"t": {"0": 30}}
    assert Query(topic, checkpoint=query.checkpoint, failOnDataLoss=False).trigger() == [numbers(60, 70)]


def test_checkpoint_of_other_topics_is_data_loss(topic: Path) -> None:
    append(topic, "u", 0, numbers(50, 52))
    checkpoint = Checkpoint(['{"u": {"0": 1}}'], 1)
    with pytest.raises(DataLoss) as caught:
        Query(topic, checkpoint=checkpoint, subscribe="t").trigger()
    assert "Partitions Set(u-0) have been deleted." in str(caught.value)
    assert "which the query does not read: does the checkpoint belong to a query of other topics?" in str(caught.value)
    assert checkpoint == Checkpoint(['{"u": {"0": 1}}'], 1)
    both = Query(topic, checkpoint=checkpoint, subscribe="t,u")
    assert both.trigger() == [sorted([*numbers(0, 30), "51"])]


@pytest.mark.parametrize("text", ['{"t": {"0": "x"}}', '{"logOffset": 5}', "17", '{"t": {"0": -5}}', "[]"])
def test_malformed_offsets_in_a_checkpoint_are_refused(topic: Path, text: str) -> None:
    checkpoint = Checkpoint([text], 1)
    with pytest.raises(MalformedOffsets, match="the query's offsets cannot be used"):
        Query(topic, checkpoint=checkpoint).trigger()
    with pytest.raises(MalformedOffsets, match="the query's offsets cannot be used"):
        Query(topic, checkpoint=Checkpoint(['{"t": {"0": 5}}', text], 1)).trigger()
    assert checkpoint.offsets == [text]


def test_logged_batch_missing_from_the_log_is_data_loss(topic: Path) -> None:
    checkpoint = Checkpoint(['{"t": {"0": 25}}', '{"t": {"0": 35}}'], 1)
    reason = lost(Query(topic, checkpoint=checkpoint).trigger)
    assert reason == "Could not read records in offset [25, 35) for topic partition t-0: the log holds [0, 30)."
    forgiving = Query(topic, checkpoint=checkpoint, failOnDataLoss=False)
    assert forgiving.trigger() == [numbers(25, 30)]
    assert forgiving.trigger() == [[]], "the position moves to the log's end"
    append(topic, "t", 0, numbers(30, 33))
    assert forgiving.trigger() == [numbers(30, 33)]


@pytest.mark.local_only("messages and plans name local paths")
def test_corrupt_batch_is_named_and_the_query_continues_after_repair(topic: Path) -> None:
    query = started(topic)
    append(topic, "t", 0, numbers(30, 50), roll_first=True, batch=5)
    log = segment(topic, 30)
    good = log.read_bytes()
    for at in (len(good) // 2 + 70, 70):
        bad = bytearray(good)
        bad[at] ^= 0xFF
        log.write_bytes(bad)
        with pytest.raises(KafkalogError) as caught:
            query.trigger()
        assert str(caught.value).startswith(f"t-0 {log} at byte ")
        assert "CRC-32C does not match" in str(caught.value)
        assert query.checkpoint.committed == 1
        query = Query(topic, checkpoint=query.checkpoint)
    rows = Query(topic, checkpoint=Checkpoint(['{"t": {"0": 30}}'], 1), mode="DROPMALFORMED").trigger()
    assert rows == [numbers(35, 50)]
    log.write_bytes(good)
    assert Query(topic, checkpoint=query.checkpoint).trigger() == [numbers(30, 50)]


@pytest.mark.local_only("the S3 server over a directory gives files that others wrote no ETag, and times in seconds")
def test_torn_tail_is_not_part_of_latest(topic: Path) -> None:
    query = started(topic)
    whole = segment(topic, 20).stat().st_size
    append(topic, "t", 0, numbers(30, 40), batch=10)
    data = segment(topic, 20).read_bytes()
    for cut in (whole + 1, whole + 11, whole + 60, whole + 61, len(data) - 1):
        segment(topic, 20).write_bytes(data[:cut])
        assert query.trigger() == []
    segment(topic, 20).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # all there, but not yet what was sent
    assert query.trigger() == []
    segment(topic, 20).write_bytes(data)
    assert query.trigger() == [numbers(30, 40)]


def test_query_continues_after_a_broker_truncates_the_torn_tail(topic: Path) -> None:
    query = started(topic)
    log = segment(topic, 20)
    whole = log.read_bytes()
    log.write_bytes(whole + whole[-40:])
    assert query.trigger() == []
    log.write_bytes(whole)
    append(topic, "t", 0, numbers(30, 34))
    assert query.trigger() == [numbers(30, 34)]


def test_segment_cleaned_between_planning_and_reading_is_read(topic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = started(topic, maxOffsetsPerTrigger=12, **BY_TASKS)
    other = topic.with_name("cleaned")
    append(other, "t", 0, numbers(0, 20), batch=20)  # one segment with the records of two

    def clean(step: str) -> None:
        if step == "reading":
            for old in (0, 10):
                for path in (topic / "t-0").glob(f"{old:020d}.*"):
                    path.rename(f"{path}.deleted")
            for path in (other / "t-0").glob(f"{0:020d}.*"):
                path.rename(topic / "t-0" / path.name)

    monkeypatch.setattr(query, "_crash", clean)
    assert query.trigger() == [numbers(12, 24)]
    assert query.trigger() == [numbers(24, 30)]
