"""stream.writeStream.format("kafkalog"): every micro-batch once, whatever fails."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.sink.helpers.written_logs import check_log, everything, last_record, staged_files, texts
from tests.spark.helpers.loads import setting


def add(source: Path, name: str, *values: object) -> None:
    """A file for the stream of text files."""
    source.mkdir(exist_ok=True)
    hidden = source / f".{name}"
    hidden.write_text("".join(f"{value}\n" for value in values))
    second = len(list(source.iterdir()))  # Spark takes the oldest first
    os.utime(hidden, (1_700_000_000 + second, 1_700_000_000 + second))
    hidden.rename(source / name)


def run(spark: Any, source: Path, target: Path, checkpoint: Path, column: str = "value", **options: object) -> Any:
    """Run the stream over all that is there; the query, ended."""
    writer = (
        spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(str(source)).selectExpr(column)
        .writeStream.format("kafkalog").option("topic", "t").option("checkpointLocation", str(checkpoint))
    )  # fmt: skip
    for name, value in options.items():
        writer = writer.option(name.replace("_", "."), value)
    query = writer.trigger(availableNow=True).start(str(target))
    try:
        query.awaitTermination(300)
    except Exception:  # noqa: BLE001  the caller looks at query.exception()
        pass
    return query


def test_micro_batches_are_appended_in_order(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        add(tmp_path / "in", f"{number}.txt", *range(10 * number, 10 * number + 10))
    query = run(spark, tmp_path / "in", tmp_path / "log", tmp_path / "checkpoint")
    assert query.exception() is None
    assert texts(tmp_path / "log") == [str(n) for n in range(30)]
    assert last_record(tmp_path / "log").queries == {query.id: 2}
    check_log(tmp_path / "log")
    add(tmp_path / "in", "3.txt", 30)
    run(spark, tmp_path / "in", tmp_path / "log", tmp_path / "checkpoint")
    assert texts(tmp_path / "log") == [str(n) for n in range(31)]


def test_micro_batch_that_is_replayed_is_recognised(spark: Any, tmp_path: Path) -> None:
    """What a crash between our commit and Spark's leaves: the offsets are logged, the batch is not in commits/."""
    add(tmp_path / "in", "0.txt", "a")
    add(tmp_path / "in", "1.txt", "b")
    run(spark, tmp_path / "in", tmp_path / "log", tmp_path / "checkpoint")
    for path in (tmp_path / "checkpoint" / "commits").iterdir():
        if "1" in path.name:
            path.unlink()
    add(tmp_path / "in", "2.txt", "c")
    query = run(spark, tmp_path / "in", tmp_path / "log", tmp_path / "checkpoint")
    assert query.exception() is None
    assert texts(tmp_path / "log") == ["a", "b", "c"]
    assert query.id == json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    check_log(tmp_path / "log")


def test_queries_with_equal_batch_ids_are_distinguished(spark: Any, tmp_path: Path) -> None:
    add(tmp_path / "in", "0.txt", "a")
    for checkpoint in ("one", "two"):
        run(spark, tmp_path / "in", tmp_path / "log", tmp_path / checkpoint)
    assert texts(tmp_path / "log") == ["a", "a"]


def test_failed_micro_batch_leaves_nothing_and_is_retried_after_a_restart(spark: Any, tmp_path: Path) -> None:
    add(tmp_path / "in", "0.txt", "a")
    assert run(spark, tmp_path / "in", tmp_path / "log", tmp_path / "checkpoint").exception() is None
    before = everything(tmp_path / "log")
    add(tmp_path / "in", "1.txt", "bad")
    fails = "assert_true(value != 'bad') is null and false x"
    failed = run(spark, tmp_path / "in", tmp_path / "log", tmp_path / "checkpoint", f"struct(value, {fails}).value")
    assert "bad" in str(failed.exception())
    assert everything(tmp_path / "log") == before
    assert run(spark, tmp_path / "in", tmp_path / "log", tmp_path / "checkpoint").exception() is None
    assert texts(tmp_path / "log") == ["a", "bad"]
    check_log(tmp_path / "log")


def test_invalid_rows_fail_the_query_and_leave_nothing_staged(spark: Any, tmp_path: Path) -> None:
    add(tmp_path / "in", "0.txt", "a" * 5000)
    failed = run(
        spark, tmp_path / "in", tmp_path / "log", tmp_path / "checkpoint", max_message_bytes=2000, batch_size=1000
    )
    assert "at most 2000 are allowed; raise max.message.bytes" in str(failed.exception())
    assert not (tmp_path / "log").exists() or staged_files(tmp_path / "log") == []


def test_output_mode_complete_appends(spark: Any, tmp_path: Path) -> None:
    add(tmp_path / "in", "0.txt", "a", "b", "a")
    query = (
        spark.readStream.text(str(tmp_path / "in")).groupBy("value").count().selectExpr("concat(value, count) value")
        .writeStream.format("kafkalog").option("topic", "t").outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        .start(str(tmp_path / "log"))
    )  # fmt: skip
    query.awaitTermination(300)
    assert query.exception() is None
    assert sorted(texts(tmp_path / "log")) == ["a2", "b1"]


def test_deleted_checkpoint_starts_a_new_query(spark: Any, tmp_path: Path) -> None:
    add(tmp_path / "in", "0.txt", "a")
    run(spark, tmp_path / "in", tmp_path / "log", tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "checkpoint")
    run(spark, tmp_path / "in", tmp_path / "log", tmp_path / "checkpoint")
    assert texts(tmp_path / "log") == ["a", "a"]
    assert len(last_record(tmp_path / "log").queries) == 2


def test_output_mode_update_is_refused_by_spark(spark: Any, tmp_path: Path) -> None:
    add(tmp_path / "in", "0.txt", "a")
    query = (
        spark.readStream.text(str(tmp_path / "in")).writeStream.format("kafkalog").outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).option("topic", "t")
        .start(str(tmp_path / "log"))
    )  # fmt: skip
    with pytest.raises(PySparkException, match="does not support Update mode"):
        query.awaitTermination(300)


@pytest.mark.end_to_end
def test_two_queries_with_equal_options_do_not_interfere(spark: Any, tmp_path: Path) -> None:
    """Their checkpoints come from a setting, so only Spark can tell them apart."""
    for name in ("one", "two"):
        for number in range(3):
            add(tmp_path / name, f"{number}.txt", f"{name} {number}")
    with setting(spark, "spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints")):
        queries = [
            spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(str(tmp_path / name))
            .writeStream.format("kafkalog").option("topic", "t").queryName(name).trigger(availableNow=True)
            .start(str(tmp_path / "log"))
            for name in ("one", "two")
        ]  # fmt: skip
        for query in queries:
            query.awaitTermination(120)
            assert query.exception() is None
    assert sorted(texts(tmp_path / "log")) == [f"{name} {number}" for name in ("one", "two") for number in range(3)]
    check_log(tmp_path / "log")
