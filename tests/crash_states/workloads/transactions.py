"""Transactional producers of both versions, which share a partition of __transaction_state."""

from __future__ import annotations

import random

from tests.crash_states.world import World, workload


@workload("transactions")
def transactions(world: World) -> None:
    """Three producers commit and abort transactions over several partitions at the same time, one is fenced."""
    world.start()
    admin = world.session()
    admin.create_topic("orders", 3, internal_segment_bytes=1200, **world.topic_configs)
    admin.create_topic("payments", 2, **world.topic_configs)
    partitions = [("orders", 0), ("orders", 1), ("orders", 2), ("payments", 0), ("payments", 1)]

    def produce(number: int, version: int) -> None:
        rng = random.Random(world.seed * 10 + number)
        session = world.session()
        producer = session.transactional_producer(f"producer-{number}", version)
        for turn in range(5):
            for partition in rng.sample(partitions, rng.randint(1, 3)):
                producer.produce(partition, world.values(rng.randint(1, 2)))
            if rng.random() < 0.4:
                producer.commit_offset(f"group-{number}", ("orders", 0), turn + 1)
            if turn == 3:  # the next producer of that name ends what this one has begun
                producer = session.transactional_producer(f"producer-{number}", version)
                continue
            producer.end(commit=rng.random() < 0.7)
        producer.produce(rng.choice(partitions), world.values(1))  # stays open

    def plain() -> None:
        rng = random.Random(world.seed)
        session = world.session()
        for _ in range(10):
            session.produce(rng.choice(partitions), world.values(1))

    world.in_parallel(*(lambda n=number: produce(n, 1 + n % 2) for number in range(3)), plain)
