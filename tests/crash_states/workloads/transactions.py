"""Transactional producers of both versions, which share a partition of __transaction_state."""

from __future__ import annotations

import random

from tests.crash_states.administrator import set_config
from tests.crash_states.world import World, workload

ORDERS, PAYMENTS = 3, 2
PROPERTIES = {"log.cleaner.min.cleanable.ratio": 0.01}


@workload("transactions", PROPERTIES)
def transactions(world: World) -> None:
    """Three producers commit and abort transactions over several partitions at the same time, one is fenced."""
    world.start()
    admin = world.session()
    admin.create_topic("orders", ORDERS, internal_segment_bytes=1200, **world.topic_configs)
    admin.create_topic("payments", PAYMENTS, **world.topic_configs)
    admin.find_coordinator("group-0", of_group=True)
    admin.find_coordinator("producer-0")
    # Topics of coordinators roll, and are compacted, after a few transactions.
    set_config(admin, "topic", "__transaction_state", "internal.segment.bytes", "2500")
    set_config(admin, "topic", "__consumer_offsets", "internal.segment.bytes", "700")
    partitions = [("orders", number) for number in range(ORDERS)] + [("payments", number) for number in range(PAYMENTS)]

    def produce(number: int, version: int) -> None:
        rng = random.Random(world.seed * 10 + number)
        session = world.session()
        producer = session.transactional_producer(f"producer-{number}", version)
        for turn in range(4):
            for partition in rng.sample(partitions, rng.randint(1, 3)):
                producer.produce(partition, world.values(rng.randint(1, 2)))
            if rng.random() < 0.4:
                producer.commit_offset(f"group-{number}", ("orders", 0), turn + 1)
            if turn == 2:  # the next producer of that name ends what this one has begun
                producer = session.transactional_producer(f"producer-{number}", version)
                continue
            producer.end(commit=rng.random() < 0.7)
        producer.produce(rng.choice(partitions), world.values(1))  # stays open

    def plain() -> None:
        rng = random.Random(world.seed)
        session = world.session()
        for _ in range(10):
            session.produce(rng.choice(partitions), world.values(1))

    def clean() -> None:
        for _ in range(3):
            world.broker.clean()

    world.in_parallel(*(lambda n=number: produce(n, 1 + n % 2) for number in range(3)), plain)
    world.in_parallel(*(lambda n=number: produce(n, 1 + n % 2) for number in range(3)), clean)


@workload("idle")
def idle(world: World) -> None:
    """Logs that nobody writes to: their writers are closed and their indexes trimmed; then they roll, and so on."""
    world.start()
    admin = world.session()
    admin.create_topic("orders", 2, internal_segment_bytes=700, segment_ms=200_000, **world.topic_configs)
    rng = random.Random(world.seed)
    producers = [world.session().transactional_producer(f"producer-{number}", 1 + number) for number in range(2)]
    plain = world.session()
    for turn in range(4):
        for producer in producers:
            for partition in range(2):
                producer.produce(("orders", partition), world.values(rng.randint(1, 3)),
                                 timestamp=world.clock.now_ms())  # fmt: skip
            producer.end(commit=rng.random() < 0.4)
        if turn == 2:
            producers[0].produce(("orders", 0), world.values(1), timestamp=world.clock.now_ms())
        for _ in range(3):
            world.broker.tick(61_000)
        plain.produce(("orders", turn % 2), world.values(2), timestamp=world.clock.now_ms())
        if turn == 2:
            producers[0].end(commit=False)
        world.broker.tick(61_000)
        if turn == 1:
            plain.produce(("orders", 0), world.values(2), timestamp=world.clock.now_ms())
