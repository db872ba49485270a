"""A topic with transactions, three codecs and headers that a broker copies to each place in each way: every reader sees
every record, and the disk holds one segment.

KAFKALOG_TIERED_BYTES says how large it is: 1073741824 makes segments of 16 MiB.
"""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkalog_broker.testing import running_broker
from tests.broker.remote.helpers.sent_records import VALUE, SentRecords, by_java, by_librdkafka, by_spark
from tests.broker.remote.helpers.tiered_broker import LOCAL_TIERED, SMALL, s3_properties, wait_until
from tests.interop.real_kafka import available
from tests.log.tiered.aiven_writer import KEY_ID, KEYS
from tests.spark.helpers.streams import start_query
from tests.store.buckets import s3_options
from tests.store.s3_server import S3Server

SIZE = int(os.environ.get("KAFKALOG_TIERED_BYTES", 6 << 20))
SEGMENT = SIZE >> (6 if SIZE > 1 << 28 else 4)
KEY_FILE = str(KEYS / f"{KEY_ID}.pem")
WAYS = {
    "plain": {},
    "zstd": {"compression.enabled": "true"},
    "encrypted": {
        "compression.enabled": "true", "encryption.enabled": "true", "encryption.key.pairs": KEY_ID,
        "encryption.key.pair.id": KEY_ID, f"encryption.key.pairs.{KEY_ID}.private.key.file": KEY_FILE,
    },
}  # fmt: skip
TOPIC = SMALL | {
    "internal.segment.bytes": SEGMENT, "local.retention.ms": 1, "index.interval.bytes": 4096,
    "message.timestamp.after.max.ms": 1 << 40,
}  # fmt: skip
LEVELS = ("read_uncommitted", "read_committed")

pytestmark = [pytest.mark.interop, pytest.mark.skipif(available() is not None, reason=str(available()))]


@pytest.mark.parametrize(
    ("place", "way"),
    [
        ("local-tiered", "plain"),
        ("s3", "encrypted"),
        *(pytest.param("folder", way, marks=pytest.mark.slow) for way in WAYS),
        *(pytest.param("s3", way, marks=pytest.mark.slow) for way in ("plain", "zstd")),
    ],
)
def test_every_reader_returns_every_record_of_a_tiered_topic(spark: Any, place: str, way: str, tmp_path: Path) -> None:
    properties: dict[str, object] = {f"rsm.config.{name}": value for name, value in WAYS[way].items()}
    options = {"subscribe": "orders", "includeHeaders": "true", f"tiered.encryption.key.{KEY_ID}": KEY_FILE}
    data, seen, dice = tmp_path / "data", [], random.Random(32)
    with ExitStack() as stack:
        if place == "s3":
            server = stack.enter_context(S3Server(tmp_path / "buckets"))
            server.make_bucket("tier")
            properties |= s3_properties(server)
            options |= {**s3_options(server), "tiered.root": "s3://tier"}
        elif place == "local-tiered":
            properties["remote.log.storage.manager.class.name"] = LOCAL_TIERED
        reader = spark.read.format("kafkalog").options(**options)
        with running_broker(properties, topics={"orders": TOPIC}, log_dir=data, tiered=True) as broker:
            sent = SentRecords(broker.bootstrap, "orders", SIZE // VALUE // 500)
            sent.send(SIZE // VALUE // 4)
            query = start_query(
                spark.readStream.format("kafkalog")
                .options(**options, startingOffsets="earliest", isolationLevel="read_committed")
                .option("maxOffsetsPerTrigger", SIZE // VALUE // 8)
                .load(str(data))
                .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
                .foreachBatch(lambda frame, _: seen.append(by_spark(frame)))
            )
            stack.callback(query.stop)
            sent.send(SIZE // VALUE * 3 // 4)
            wait_until(lambda: len(list((data / "orders-0").glob("*.log"))) == 1, broker.log()[-3000:], 300)
            offsets = sent.records(False)["offset"]
            assert len(offsets) * VALUE > SIZE * 0.99
            ranges = [f"0:{SIZE}", *(f"{dice.choice(offsets)}:500" for _ in range(5))]
            ranges += [f"@{timestamp}:500" for timestamp in sent.timestamps(dice, 5)]
            for level in LEVELS:
                expected = sent.expected(ranges, level == "read_committed")
                np.testing.assert_array_equal(by_librdkafka(broker.bootstrap, "orders", level, ranges), expected)
                by_clients = by_java(broker.bootstrap, "orders", level, ranges, tmp_path / "java")
                np.testing.assert_array_equal(by_clients, expected)
                of_spark = by_spark(reader.option("isolationLevel", level).load(str(data)))
                np.testing.assert_array_equal(of_spark, sent.records(level == "read_committed"))
            query.processAllAvailable()
            np.testing.assert_array_equal(np.concatenate(seen), sent.records(True))
        for level in LEVELS:
            of_spark = by_spark(reader.option("isolationLevel", level).load(str(data)))
            np.testing.assert_array_equal(of_spark, sent.records(level == "read_committed"))
        query.stop()
