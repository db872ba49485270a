"""Groups of all kinds: committed offsets, deletions, acknowledgements of share groups."""

from __future__ import annotations

from tests.crash_states.administrator import delete_group, set_config
from tests.crash_states.group_member import ClassicMember, ConsumerMember, ShareMember, commit_offset, delete_offset
from tests.crash_states.session import Session
from tests.crash_states.world import World, workload

PROPERTIES = {
    "group.consumer.assignment.interval.ms": 0, "group.share.assignment.interval.ms": 0,
    "log.cleaner.min.cleanable.ratio": 0.01,
}  # fmt: skip


@workload("groups", PROPERTIES)
def groups(world: World) -> None:
    """A classic, a consumer and a share group, and offsets committed without a group, all at the same time."""
    world.start()
    admin = world.session()
    topic_id = admin.create_topic("orders", 2, **world.topic_configs)
    admin.find_coordinator("simple", of_group=True)
    set_config(admin, "topic", "__consumer_offsets", "internal.segment.bytes", "700")
    set_config(admin, "group", "sharing", "share.auto.offset.reset", "earliest")

    def produce() -> None:
        session = world.session()
        for turn in range(6):
            session.produce(("orders", turn % 2), world.values(2))

    def simple() -> None:
        session = world.session()
        for offset in range(1, 8):
            commit_offset(session, "simple", ("orders", offset % 2), offset)
        delete_offset(session, "simple", ("orders", 0))
        commit_offset(session, "deleted", ("orders", 1), 5)
        delete_group(session, "deleted")
        commit_offset(session, "simple", ("orders", 1), 9)

    def classic() -> None:
        member = ClassicMember(world.session(), "classic")
        for offset in range(1, 5):
            member.commit(("orders", 0), offset)
        member.leave()
        delete_group(member.session, "classic")

    def consumer() -> None:
        member = ConsumerMember(world.session(), "consumer", "orders")
        for offset in range(1, 5):
            member.commit(("orders", 1), offset)
        member.leave()

    produce()
    world.in_parallel(produce, simple, classic, consumer)
    world.in_parallel(lambda: _share(world.session(), topic_id), world.broker.clean)
    commit_offset(admin, "simple", ("orders", 0), 11)


def _share(session: Session, topic_id: str) -> None:
    member = ShareMember(session, "sharing", "orders", topic_id)
    for _ in range(30):
        acquired = member.fetch(0)
        if not acquired:
            session.pause()
            continue
        for first, last in acquired:
            member.accept(0, first, last)
        if acquired[-1][1] >= 10:
            return
