"""A stream of partitions that a broker is writing, rolling, deleting from, and recovering after kill -9."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kafkalog_broker.testing import RunningBroker
from tests.source.helpers.live_load import PARTITIONS, TOPIC, Load
from tests.source.helpers.stream_driver import Checkpoint, Query

pytestmark = pytest.mark.end_to_end

RATE = 4_000  # records a second
TRIGGERS = 24


@pytest.mark.parametrize("limits", [{}, {"maxOffsetsPerTrigger": 600}, {"maxBytesPerTrigger": "20k"}], ids=str)
def test_a_live_stream_reads_every_acknowledged_record_once(tmp_path: Path, limits: dict[str, Any]) -> None:
    moments = random.Random(5)
    broker = RunningBroker(tmp_path / "data")
    broker.start()
    broker.create_topic(TOPIC, PARTITIONS, {"internal.segment.bytes": 10_000})
    load = Load(broker, RATE)
    load.start()
    options = {"subscribe": TOPIC, "startingOffsets": "earliest", **limits}
    checkpoint = Checkpoint()
    query = Query(broker.log_dir, checkpoint=checkpoint, **options)
    rows: list[pa.Table] = []
    for trigger in range(TRIGGERS):
        batch = query.batch()
        if batch is not None:
            rows.append(batch)
        if trigger % 10 == 8:
            broker.kill()
            rows += filter(None, [query.batch()])  # of a directory that nobody has tidied up
            broker.start()
        if moments.random() < 0.1:
            query = Query(broker.log_dir, checkpoint=checkpoint, **options)
        time.sleep(moments.uniform(0, 0.05))  # the load is what the triggers have to meet, at any moment
    load.stop.set()
    load.join(150)
    query = Query(broker.log_dir, checkpoint=checkpoint, trigger_kind="availableNow", **options)
    while (batch := query.batch()) is not None:
        rows.append(batch)
    broker.stop()
    assert load.failed == []
    table = pa.concat_tables(rows)
    values = [int(value) for value in table["value"].to_pylist()]
    assert len(load.acknowledged) > 2_000, "too little was sent: the test has shown nothing"
    assert len(set(values)) == len(values), "a record is there twice"
    assert load.acknowledged <= set(values), f"lost: {sorted(load.acknowledged - set(values))[:20]}"
    for partition in range(PARTITIONS):
        offsets = table.filter(pc.equal(table["partition"], partition))["offset"].to_pylist()
        assert sorted(offsets) == list(range(len(offsets)))
