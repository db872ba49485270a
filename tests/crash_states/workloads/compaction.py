"""A compacted topic, cleaned several times: keys that change, tombstones, idempotent producers."""

from __future__ import annotations

import random

from tests.crash_states.session import IdempotentProducer, Session
from tests.crash_states.state_check import StateCheck
from tests.crash_states.world import World, workload

TOPIC = "table"
KEYS = [b"key-%d" % number for number in range(6)]


def check_table(check: StateCheck) -> None:
    """Each key has the last value of the part of the log that is there, also after the cleaner has gone on."""
    for _ in range(2):
        for partition in check.served:
            writes = [
                (batch.base_offset + index, key, value, batch)
                for batch in check.ledger.of_partition(partition)
                for index, (key, value) in enumerate(zip(batch.keys or (), batch.values, strict=True))
            ]
            end = check.broker.recovered[partition]
            last = {key: (offset, value) for offset, key, value, _ in writes if offset < end}
            _, _, records = check.session.read(partition)
            shown = {one.key: (one.offset, one.value) for one in records if one.marker is None and one.offset < end}
            for key, wanted in last.items():
                if key is not None and shown.get(key) != wanted and not (key not in shown and wanted[1] is None):
                    check.report("key-lost", f"{partition} {key!r} is {shown.get(key)}, its last record {wanted}")
            for unknown in shown.keys() - last.keys():
                check.report("foreign-key", f"{partition} {unknown!r}: {shown[unknown]}")
        check.broker.clean()


@workload("compaction", check=check_table)
def compaction(world: World) -> None:
    """Two partitions are written to by an idempotent and a plain producer, and cleaned."""
    world.facts["compacted"] = {TOPIC}
    world.start()
    session = world.session()
    session.create_topic(
        TOPIC, 2, cleanup_policy="compact", internal_segment_bytes=600, min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=50_000, file_delete_delay_ms=1000, **world.topic_configs,
    )  # fmt: skip
    rng = random.Random(world.seed)
    idempotent = session.producer()
    for _ in range(5):
        for _ in range(8):
            partition = (TOPIC, rng.randrange(2))
            keys = rng.sample(KEYS, rng.randint(1, 2))
            values = [None if rng.random() < 0.25 else value for value in world.values(len(keys), 30)]
            writer: IdempotentProducer | Session = idempotent if rng.random() < 0.5 else session
            writer.produce(partition, values, keys=keys, timestamp=world.clock.now_ms())
        world.broker.clean()
        world.broker.tick(61_000)
