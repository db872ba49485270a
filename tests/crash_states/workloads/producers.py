"""Plain and idempotent producers, logs that roll, retention and DeleteRecords; clean restarts in between."""

from __future__ import annotations

import random

from tests.crash_states.administrator import set_config
from tests.crash_states.ledger import Partition, Trim
from tests.crash_states.world import World, workload

PARTITIONS = 3
CHECKPOINT_MS = 61_000
"""A little more than the interval of each checkpoint."""


def _plain(world: World, topic: str, requests: int, seed: int) -> None:
    rng, session = random.Random(seed), world.session()
    for _ in range(requests):
        partition = (topic, rng.randrange(PARTITIONS))
        sent = session.produce(partition, world.values(rng.randint(1, 4), 40), timestamp=world.clock.now_ms())
        if rng.random() < 0.3:
            session.fetch(partition, sent.base_offset)


def _idempotent(world: World, topic: str, requests: int, seed: int) -> None:
    rng, producer = random.Random(seed), world.session().producer()
    for _ in range(requests):
        partition = (topic, rng.randrange(PARTITIONS))
        producer.produce(partition, world.values(rng.randint(1, 4), 40), timestamp=world.clock.now_ms())


def _write(world: World, topic: str, requests: int, seed: int) -> None:
    world.in_parallel(
        lambda: _plain(world, topic, requests, seed),
        lambda: _idempotent(world, topic, requests, seed + 1),
        lambda: _idempotent(world, topic, requests, seed + 2),
    )


@workload("producers")
def producers(world: World) -> None:
    """Three clients write to three partitions whose segments hold a few batches; then old records are deleted."""
    world.start()
    admin = world.session()
    admin.create_topic("orders", PARTITIONS, internal_segment_bytes=1200, index_interval_bytes=200,
                       file_delete_delay_ms=1, **world.topic_configs)  # fmt: skip
    _write(world, "orders", 10, world.seed)
    world.broker.tick(CHECKPOINT_MS)
    admin.delete_records(("orders", 0), 2)
    for partition in range(PARTITIONS):
        world.ledger.trims.append(Trim(("orders", partition), 10**9, world.point()))
    set_config(admin, "topic", "orders", "retention.ms", "100000")
    world.broker.tick(400_000)
    _write(world, "orders", 4, world.seed + 10)
    world.broker.tick(CHECKPOINT_MS)
    _write(world, "orders", 4, world.seed + 20)


@workload("restarts")
def restarts(world: World) -> None:
    """The broker is stopped cleanly and started again between writes, so that old clean-shutdown markers matter."""
    world.start()
    world.session().create_topic("orders", PARTITIONS, internal_segment_bytes=1500, **world.topic_configs)
    for turn in range(3):
        _write(world, "orders", 4, world.seed + 10 * turn)
        if turn == 1:
            world.broker.tick(CHECKPOINT_MS)
        world.stop()
        world.start()
    transactional = world.session().transactional_producer("t")
    partition: Partition = ("orders", 0)
    for commit in (True, False):
        transactional.produce(partition, world.values(2))
        transactional.end(commit=commit)
    world.stop()
    world.start()
    _write(world, "orders", 3, world.seed + 50)
