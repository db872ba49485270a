"""Spark's writers to a broker, for the option kafka.bootstrap.servers. They use librdkafka (package confluent-kafka).

Delivery is at least once. The producer is idempotent, so a task attempt sends no record twice, but a task or
micro-batch that runs again sends its records again. Records are visible immediately, even if the job fails later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkalog_spark.errors import InvalidRecord, ProduceFailed
from kafkalog_spark.log.codecs.compress import check_decompressed
from kafkalog_spark.sink.columns import SinkColumns, sink_columns
from kafkalog_spark.sink.options import WriteOptions
from kafkalog_spark.sink.row_checks import check_rows, negative_partition, topic_column
from kafkalog_spark.sink.topic_names import topic_fault
from kafkalog_spark.spark import librdkafka
from kafkalog_spark.spark.release_differences import StreamWriterBase
from kafkalog_spark.spark.shortened_errors import shorten_errors

DEFAULTS = {
    "enable.idempotence": "true",
    "partitioner": "murmur2_random",  # the partitions that a Java producer chooses for keys
    "linger.ms": "20",  # full batches matter more than latency
}
"""Defaults that `kafka.*` options override."""

_COMPRESSION = ("compression.type", "compression.codec")  # librdkafka's two names of it
_ANY_PARTITION = -1  # librdkafka's RD_KAFKA_PARTITION_UA
_POLL_SECONDS = 0.1  # while librdkafka's queue is full
_ROWS_BETWEEN_POLLS = 1000
_FLUSH_SECONDS = 10.0  # of one call, repeated until librdkafka's message.timeout.ms


def new_producer(settings: Mapping[str, str]) -> Any:
    def make() -> Any:
        from confluent_kafka import Producer

        return Producer({**DEFAULTS, **settings})

    return librdkafka.make_client(
        make,
        "kafka.bootstrap.servers",
        "pip install confluent-kafka, on the driver and every executor",
        "they are settings of librdkafka's producer",
    )


class ProduceTask:
    """Sends the rows of one task. producer: confluent_kafka.Producer, or a test's double."""

    def __init__(self, options: WriteOptions, columns: SinkColumns, producer: Any) -> None:
        self._options = options
        self._columns = columns
        self._producer = producer
        self._compresses = any(options.producer.get(name, "none") != "none" for name in _COMPRESSION)
        self._failed: list[str] = []
        self._good_topics: set[str] = set()

    def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Send all rows and wait until the broker has acknowledged them. Raises InvalidRecord, ProduceFailed."""
        for batch in batches:
            check_rows(batch)
            if self._compresses:
                cells = [batch.column(name) for name in ("key", "value") if name in batch.schema.names]
                sizes = [pc.fill_null(pc.cast(pc.binary_length(column), pa.int64()), 0) for column in cells]
                check_decompressed(pc.max(reduce(pc.add, sizes)).as_py() or 0)  # of one record
            self._send(batch)
            self._raise_failure()
        while self._producer.flush(_FLUSH_SECONDS):
            self._raise_failure()
        self._raise_failure()

    def _send(self, batch: pa.RecordBatch) -> None:
        topics = [self._options.topic] * batch.num_rows
        if self._columns.has_topic:
            topics = topic_column(batch).to_pylist()
            for topic in set(topics) - self._good_topics:
                if fault := topic_fault(topic):
                    raise InvalidRecord(fault)
                self._good_topics.add(topic)
        cells = {name: batch.column(name).to_pylist() for name in ("key", "value") if name in batch.schema.names}
        nothing: list[Any] = [None] * batch.num_rows
        partitions = batch.column("partition").to_pylist() if self._columns.has_partition else nothing
        headers = batch.column("headers").to_pylist() if "headers" in self._columns.record else nothing
        times = _milliseconds(batch.column("timestamp")) if "timestamp" in self._columns.record else nothing
        rows = zip(topics, cells.get("key", nothing), cells["value"], partitions, headers, times, strict=True)
        for number, (topic, key, value, partition, pairs, timestamp) in enumerate(rows):
            if partition is not None and partition < 0:
                raise InvalidRecord(negative_partition(partition))
            message: dict[str, Any] = {"partition": _ANY_PARTITION if partition is None else partition}
            if timestamp is not None:
                message["timestamp"] = timestamp
            if pairs:
                message["headers"] = [(pair["key"], pair["value"]) for pair in pairs]
            self._produce(topic, value, key, message)
            if number % _ROWS_BETWEEN_POLLS == 0:
                self._producer.poll(0)

    def _produce(self, topic: str, value: Any, key: Any, message: dict[str, Any]) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._delivered, **message)
                return
            except BufferError:  # the queue is full: handle delivery reports until there is room
                self._producer.poll(_POLL_SECONDS)
                self._raise_failure()
            except KafkaException as error:
                raise ProduceFailed(f"a record was refused: {error.args[0].str()}", topic_partition=topic) from None

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(f"{message.topic()}-{message.partition()}: {error.str()}")

    def _raise_failure(self) -> None:
        if self._failed:
            raise ProduceFailed(
                f"{len(self._failed)} records were refused, the first: {self._failed[0]}",
                hint=f"brokers: {self._options.producer['bootstrap.servers']}; other records of the task may be there",
            )


def _milliseconds(column: pa.Array) -> list[int | None]:
    if pa.types.is_timestamp(column.type):
        column = pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz)).view(pa.int64())
    cells: list[int | None] = column.to_pylist()
    return cells


class _ProducerWriter:
    """Writer that checks options and columns on the driver, and sends in the tasks."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = sink_columns(schema, options.topic, options.formats)
        new_producer(options.producer)  # checks the settings; does not connect yet

    @shorten_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = ProduceTask(self._options, self._columns, new_producer(self._options.producer))
        task.run(self._columns.rows(iterator))
        return WriterCommitMessage()  # all records were acknowledged, so there is nothing to commit


class ProducerBatchWriter(_ProducerWriter, DataSourceArrowWriter):  # type: ignore[misc]
    """df.write.format("kafkalog").option("kafka.bootstrap.servers", ...): at least once."""


class ProducerStreamWriter(_ProducerWriter, StreamWriterBase):  # type: ignore[misc]
    """stream.writeStream.format("kafkalog").option("kafka.bootstrap.servers", ...): at least once."""
