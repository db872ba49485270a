"""Plain and idempotent producers, logs that roll, retention and DeleteRecords."""

from __future__ import annotations

import random

from tests.crash_states.ledger import Trim
from tests.crash_states.world import World, workload


@workload("producers")
def producers(world: World) -> None:
    """Three clients write to three partitions whose segments hold a few batches; then old records are deleted."""
    world.start()
    rng = random.Random(world.seed)
    admin = world.session()
    admin.create_topic("orders", 3, internal_segment_bytes=1200, index_interval_bytes=200, file_delete_delay_ms=1,
                       **world.topic_configs)  # fmt: skip

    def plain() -> None:
        session = world.session()
        for _ in range(12):
            partition = ("orders", rng.randrange(3))
            sent = session.produce(partition, world.values(rng.randint(1, 4), 40), timestamp=world.clock.now_ms())
            if rng.random() < 0.3:
                session.fetch(partition, sent.base_offset)

    def idempotent() -> None:
        producer = world.session().producer()
        for _ in range(12):
            producer.produce(("orders", rng.randrange(3)), world.values(rng.randint(1, 4), 40),
                             timestamp=world.clock.now_ms())  # fmt: skip

    world.in_parallel(plain, idempotent, idempotent)
    world.broker.tick(61_000)
    admin.delete_records(("orders", 0), 2)
    for partition in range(3):
        world.ledger.trims.append(Trim(("orders", partition), 10**9, world.point()))
    _set_retention(world)
    world.broker.tick(400_000)
    world.in_parallel(plain, idempotent)
    world.broker.tick(61_000)
    world.in_parallel(plain, idempotent)


def _set_retention(world: World) -> None:
    session = world.session()
    change = {"name": "retention.ms", "config_operation": 0, "value": "100000"}
    answer = session.ask(
        44, 1, resources=[{"resource_type": 2, "resource_name": "orders", "configs": [change]}], validate_only=False
    )
    world.ledger.set(("config", "topic", "orders", "retention.ms"), "100000", *answer[1:])
