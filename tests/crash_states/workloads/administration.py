"""Topics, configurations, ACLs, SCRAM users and quotas: what is acknowledged is on disk with every setting."""

from __future__ import annotations

from tests.crash_states.administrator import create_acl, delete_acl, set_config, set_quota, set_scram
from tests.crash_states.session import Session
from tests.crash_states.world import World, workload

PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "log.segment.delete.delay.ms": 1,
}


@workload("administration", PROPERTIES)
def administration(world: World) -> None:
    """Three administrators change things of their own, while a producer writes."""
    world.start()
    first = world.session()
    first.create_topic("orders", 2, **world.topic_configs)

    def topics() -> None:
        session = world.session()
        for number in range(4):
            name = f"topic-{number}"
            session.create_topic(name, 1 + number % 2, retention_bytes=1000 + number, **world.topic_configs)
            session.produce((name, 0), world.values(1))
            if number % 2:
                session.add_partitions(name, 3)
                session.produce((name, 2), world.values(1))
                set_config(session, "topic", name, "retention.bytes", "5000")
                set_config(session, "topic", name, "max.message.bytes", "123456")
            else:
                session.delete_topic(name)
        world.broker.tick(61_000)
        set_config(session, "topic", "topic-1", "retention.bytes", None)

    def security() -> None:
        session = world.session()
        for number in range(3):
            create_acl(session, f"User:u{number}", "orders")
            set_scram(session, f"u{number}", 4096 + number)
            set_quota(session, f"u{number}", 1000.0 + number)
        delete_acl(session, "User:u1", "orders")
        set_scram(session, "u1", None)
        set_scram(session, "u0", 8192)
        set_quota(session, "u1", None)

    def configs() -> None:
        session = world.session()
        _broker_configs(session)

    world.in_parallel(topics, security, configs)
    first.produce(("orders", 0), world.values(1))
    world.stop()
    world.start()
    again = world.session()
    again.create_topic("topic-0", 1, **world.topic_configs)  # deleted before
    again.delete_topic("topic-3")


def _broker_configs(session: Session) -> None:
    for number in range(3):
        set_config(session, "broker", "1", "message.max.bytes", str(2_000_000 + number))
        set_config(session, "broker", "", "log.retention.bytes", str(10_000_000 + number))
        session.produce(("orders", number % 2), [b"configured %d" % number])
    set_config(session, "broker", "1", "message.max.bytes", None)


@workload("directories", PROPERTIES | {"log.dirs": "{logs},{more}"})
def directories(world: World) -> None:
    """Partitions and state files lie in two log directories, each on a disk of its own."""
    world.start()
    session = world.session()
    for number in range(3):
        name = f"topic-{number}"
        session.create_topic(name, 3, **world.topic_configs)
        for partition in range(3):
            session.produce((name, partition), world.values(1))
        set_config(session, "topic", name, "retention.bytes", str(5000 + number))
        create_acl(session, f"User:u{number}", name)
        set_scram(session, f"u{number}", 4096 + number)
        set_quota(session, f"u{number}", 1000.0 + number)
    world.broker.tick(61_000)
    session.delete_topic("topic-1")
    delete_acl(session, "User:u1", "topic-1")
    producer = session.transactional_producer("t")
    for commit in (True, False):
        for partition in range(3):
            producer.produce(("topic-0", partition), world.values(1))
        producer.end(commit=commit)
    world.stop()
    world.start()
    again = world.session()
    set_config(again, "topic", "topic-0", "retention.bytes", None)
    set_scram(again, "u0", None)
    again.produce(("topic-2", 0), world.values(1))
