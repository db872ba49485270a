"""__consumer_offsets after compaction gives the same groups and offsets as before it."""

from __future__ import annotations

import random

from kafkalog_broker.coordinator.record_batch import decode_batches, encode_batch
from kafkalog_broker.groups.group_loader import load
from kafkalog_broker.groups.offset_records import OffsetAndMetadata, OffsetKey, offset_key, offset_value
from kafkalog_broker.storage.partition.log import Log
from tests.broker.storage.helpers.cleaned_logs import clean, compacted_log
from tests.broker.storage.helpers.stored_logs import NOW, read_all

GROUPS, PARTITIONS = 7, 5


def committed(log: Log) -> dict[OffsetKey, OffsetAndMetadata | None]:
    loaded = load(decode_batches([read_all(log)]))
    keys = [OffsetKey(f"group-{group}", "orders", part) for group in range(GROUPS) for part in range(PARTITIONS)]
    return {key: loaded.offsets.get(key) for key in keys}


def test_committed_offsets_are_unchanged_after_each_compaction(tmp_path):
    log = compacted_log(tmp_path, segment_bytes=2_000, delete_retention_ms=0)
    chance = random.Random(1)
    end = 0
    for round_ in range(4):
        for number in range(60):
            group, partition = chance.randrange(GROUPS), chance.randrange(PARTITIONS)
            value = None
            if chance.random() > 0.1:
                value = offset_value(OffsetAndMetadata(1000 * round_ + number, -1, "m", NOW + number))
            record = (offset_key(f"group-{group}", "orders", partition), value)
            log.append_batch(encode_batch([record], NOW), NOW)
        before = committed(log)
        size = log.size_bytes
        end, _, _ = clean(log, first_dirty=end)
        assert committed(log) == before
        assert log.size_bytes < size
    assert any(found is not None for found in before.values())
