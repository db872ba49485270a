"""The parts of the script (consumer_script.py), each with groups of its own."""

from __future__ import annotations

from typing import Any

from tests.broker.groups.helpers.consumer_script import (
    CLASSIC_HEARTBEAT,
    DESCRIBE,
    HEARTBEAT,
    JOIN,
    LEAVE,
    SYNC,
    Script,
    assignment,
    subscription,
)
from tests.broker.groups.helpers.transactional_script import transactional

COMMIT, FETCH, DESCRIBE_CLASSIC, DELETE, OFFSET_DELETE, PARTITIONS, CONFIGS = 8, 9, 15, 42, 47, 37, 44


def uniform(s: Script) -> None:
    """Three members of one topic join, send heartbeats and leave."""
    s.join("uniform: a joins", "u", "a", "orders")
    s.describe("uniform: one member", "u")
    s.join("uniform: b joins", "u", "b", "orders")
    s.beat("uniform: a says nothing of what it has", "u", "a", 2)
    s.beat("uniform: a still has all", "u", "a", 2, owned={"orders": [0, 1, 2, 3, 4, 5]})
    s.describe("uniform: a is to give up", "u")
    s.beat("uniform: b waits", "u", "b", 3)
    s.beat("uniform: a has given up", "u", "a", 2, owned={"orders": [0, 1, 2]})
    s.beat("uniform: b gets its part", "u", "b", 3)
    s.describe("uniform: stable", "u")
    s.beat("uniform: the epoch before, with what it has", "u", "a", 2, owned={"orders": [0, 1, 2]})
    s.beat("uniform: the epoch before, with more", "u", "a", 2, owned={"orders": [0, 1, 2, 3]})
    s.beat("uniform: the epoch before, without", "u", "a", 2)
    s.join("uniform: c joins", "u", "c", "orders")
    has = {"a": {"orders": [0, 1, 2]}, "b": {"orders": [3, 4, 5]}, "c": {}}
    s.settle("uniform: three", "u", has, 4)
    s.describe("uniform: three members", "u")
    s.beat("uniform: b leaves", "u", "b", -1)
    s.beat("uniform: b is gone", "u", "b", 4)
    del has["b"]
    s.settle("uniform: two", "u", has, 5)
    s.beat("uniform: a joins again", "u", "a", 0, rebalance_timeout=60_000, subscribed_topic_names=["orders"], owned={})
    s.join("uniform: a for another topic", "u", "a", "orders", "clicks")
    s.describe("uniform: two topics", "u")
    s.list("uniform: listed", types=("consumer",))
    s.list("uniform: listed by state", states=("Reconciling", "stable"))


def refused(s: Script) -> None:
    """Invalid requests, and requests of unknown or fenced members."""
    full: dict[str, Any] = {"rebalance_timeout": 60_000, "subscribed_topic_names": ["orders"], "owned": {}}
    s.beat("refused: no member id", "e", "", 0, **full)
    s.beat("refused: no group", "", "m", 0, **full)
    s.beat("refused: empty instance", "e", "m", 0, instance_id=" ", **full)
    s.beat("refused: empty rack", "e", "m", 0, rack_id="", **full)
    s.beat("refused: no timeout", "e", "m", 0, **(full | {"rebalance_timeout": -1}))
    s.beat("refused: partitions not named", "e", "m", 0, rebalance_timeout=1, subscribed_topic_names=["orders"])
    s.beat("refused: partitions named", "e", "m", 0, **(full | {"owned": {"orders": [1]}}))
    s.beat("refused: no subscription", "e", "m", 0, **(full | {"subscribed_topic_names": None}))
    s.beat("refused: epoch -2 without an instance", "e", "m", -2)
    s.beat("refused: epoch -3", "e", "m", -3)
    s.beat("refused: assignor", "e", "m", 0, server_assignor="mine", **full)
    s.beat("refused: unknown group", "nothing", "m", 1)
    s.beat("refused: leaving an unknown group", "nothing", "m", -1)
    s.join("refused: m joins", "e", "m", "orders")
    s.beat("refused: epoch too large", "e", "m", 3)
    s.beat("refused: epoch too small", "e", "m", 1)
    s.beat("refused: unknown member", "e", "other", 2)
    s.beat("refused: unknown member leaves", "e", "other", -1)
    s.beat("refused: unknown instance", "e", "m", 2, instance_id="i")
    s.beat("refused: an unknown instance leaves", "e", "m", -2, instance_id="i")
    s.join("refused: empty subscription", "e2", "m")
    s.describe("refused: unknown, empty name", "nothing", "")
    s.ask(
        "refused: described as a classic group", DESCRIBE_CLASSIC, 6, groups=["e"], include_authorized_operations=False
    )
    s.ask("refused: described as before", DESCRIBE_CLASSIC, 5, groups=["e"], include_authorized_operations=False)
    s.ask("refused: deleted with members", DELETE, 2, groups_names=["e"])
    s.beat("refused: m leaves", "e", "m", -1)
    s.describe("refused: empty", "e")
    s.ask("refused: deleted", DELETE, 2, groups_names=["e"])
    s.describe("refused: deleted group", "e")


def first_version(s: Script) -> None:
    """Version 0, in which the broker may assign the member ID."""
    s.beat("v0: with an id", "v0", "m", 0, 0, rebalance_timeout=60_000, subscribed_topic_names=["orders"], owned={})
    s.describe("v0: described", "v0", version=0)


def static(s: Script) -> None:
    """Static members leave temporarily, return, and are fenced."""
    full: dict[str, Any] = {"rebalance_timeout": 60_000, "subscribed_topic_names": ["orders"], "owned": {}}
    s.beat("static: one", "s", "one", 0, instance_id="i1", **full)
    s.beat("static: two", "s", "two", 0, instance_id="i2", **full)
    s.beat("static: one gives up", "s", "one", 2, instance_id="i1", owned={"orders": [0, 1, 2, 3, 4, 5]})
    s.beat("static: one has given up", "s", "one", 2, instance_id="i1", owned={"orders": [0, 1, 2]})
    s.beat("static: two gets", "s", "two", 3, instance_id="i2")
    s.beat("static: taken", "s", "again", 0, instance_id="i1", **full)
    s.beat("static: one will be back", "s", "one", -2, instance_id="i1")
    s.describe("static: away", "s")
    s.beat("static: back", "s", "again", 0, instance_id="i1", **full)
    s.beat("static: the old id", "s", "one", 3, instance_id="i1")
    s.beat("static: the old id leaves", "s", "one", -1, instance_id="i1")
    s.describe("static: back in its place", "s")
    s.beat("static: back, with another topic", "s", "two", 3, instance_id="i2", subscribed_topic_names=["clicks"])
    s.beat("static: two will be back", "s", "two", -2, instance_id="i2")
    s.beat(
        "static: two is back, with another topic",
        "s",
        "two-b",
        0,
        instance_id="i2",
        **(full | {"subscribed_topic_names": ["logs"]}),
    )
    s.describe("static: after all that", "s")
    s.beat("static: leaves", "s", "two-b", -1, instance_id="i2")
    s.describe("static: one is left", "s")


def ranges(s: Script) -> None:
    """The range assignor, chosen by most members."""
    for number, member in enumerate(("x", "y", "z")):
        s.join(
            f"range: {member} joins", "r", member, "orders", "clicks", server_assignor="range", rack_id=f"rack-{number}"
        )
    s.settle("range: together", "r", {"x": {"orders": [0, 1, 2, 3, 4, 5], "clicks": [0, 1, 2, 3]}, "y": {}, "z": {}}, 4)
    s.describe("range: described", "r")
    s.join("range: others", "r", "w", "logs", server_assignor="uniform")
    s.describe("range: different subscriptions", "r")
    for member in ("x", "y"):
        s.beat(f"range: {member} asks for uniform", "r", member, 4, server_assignor="uniform")
    s.beat("range: z has another topic", "r", "z", 4, subscribed_topic_names=["orders"])
    s.describe("range: uniform now", "r")


def heterogeneous(s: Script) -> None:
    """Members of different topics."""
    topics = {
        "h1": ["orders"],
        "h2": ["orders", "clicks"],
        "h3": ["clicks", "logs"],
        "h4": ["orders", "clicks", "logs"],
    }
    for member, names in topics.items():
        s.join(f"heterogeneous: {member}", "h", member, *names)
        s.describe(f"heterogeneous: with {member}", "h")
    s.beat("heterogeneous: h4 leaves", "h", "h4", -1)
    s.join("heterogeneous: h5", "h", "h5", "logs", "orders")
    s.describe("heterogeneous: at the end", "h")


def many(s: Script) -> None:
    """Many members, in Kafka's order of hash maps."""
    for number in range(30):
        s.join(f"many: {number}", "many", f"member-{number * 7919}", "orders", "clicks", "logs")
    s.describe("many: described", "many")


def expressions(s: Script) -> None:
    """Regular expressions, resolved by the broker."""
    full: dict[str, Any] = {"rebalance_timeout": 60_000, "owned": {}}
    for number, bad in enumerate(("a[", "(", "*a", "a**", "a{2,1}", "\\8", "(?<a", "[b-a]", "(?!a)", ")")):
        s.beat(f"expressions: bad {number}", "x", "m", 0, subscribed_topic_regex=bad, **full)
    s.beat("expressions: p joins", "x", "p", 0, subscribed_topic_regex="(orders|cl.*)", **full)
    s.until(
        "expressions: p is assigned",
        lambda answer: answer["member_epoch"] > 1,
        HEARTBEAT,
        1,
        **s.heartbeat("x", "p", 1),
    )
    s.describe("expressions: described", "x")
    s.beat("expressions: q, the same", "x", "q", 0, subscribed_topic_regex="(orders|cl.*)", **full)
    s.describe("expressions: two", "x")
    s.beat("expressions: q, names too", "x", "q", 3, subscribed_topic_names=["logs"])
    s.describe("expressions: mixed", "x")
    s.beat("expressions: p, none any more", "x", "p", 2, subscribed_topic_regex="", subscribed_topic_names=["orders"])
    s.describe("expressions: p by name", "x")
    s.beat("expressions: q leaves", "x", "q", -1)
    s.describe("expressions: at the end", "x")


def offsets(s: Script) -> None:
    """Commits and fetches with member epochs."""
    s.join("offsets: a", "o", "a", "orders")

    def commit(label: str, version: int, member: str, epoch: int, partition: int = 0, **changes: Any) -> None:
        parts = [
            {
                "partition_index": partition,
                "committed_offset": 5,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
        ]
        topic = {"name": "orders", "topic_id": s._ids["orders"], "partitions": parts}
        s.ask(
            f"offsets: {label}", COMMIT, version, group_id="o", generation_id_or_member_epoch=epoch, member_id=member,
            group_instance_id=None, topics=[topic], **changes,
        )  # fmt: skip

    def fetch(label: str, version: int, member: str | None, epoch: int) -> None:
        topic = {"name": "orders", "topic_id": s._ids["orders"], "partition_indexes": [0, 1]}
        group = {"group_id": "o", "member_id": member, "member_epoch": epoch, "topics": [topic]}
        s.ask(f"offsets: fetch {label}", FETCH, version, groups=[group], require_stable=True)

    commit("in its epoch", 9, "a", 2)
    commit("by id", 10, "a", 2, 1)
    commit("epoch too large", 10, "a", 3)
    commit("old epoch", 10, "a", 1)
    commit("unknown member", 10, "b", 2)
    commit("nobody", 10, "", -1)
    commit("an old version", 8, "a", 2)
    fetch("in its epoch", 9, "a", 2)
    fetch("by id", 10, "a", 2)
    fetch("stale", 10, "a", 1)
    fetch("unknown", 10, "b", 2)
    fetch("as anybody", 10, None, -1)
    fetch("before epochs", 8, None, -1)
    s.join("offsets: b", "o", "b", "orders")
    s.beat("offsets: a gives up", "o", "a", 2, owned={"orders": [0, 1, 2, 3, 4, 5]})
    s.beat("offsets: a has given up", "o", "a", 2, owned={"orders": [0, 1, 2]})
    commit("the epoch before, of what it kept", 10, "a", 2)
    commit("the epoch before, of what it lost", 10, "a", 2, 4)
    delete = {"name": "orders", "partitions": [{"partition_index": 0}]}
    other = {"name": "logs", "partitions": [{"partition_index": 0}]}
    s.ask("offsets: deleted while subscribed", OFFSET_DELETE, 0, group_id="o", topics=[delete, other])
    s.beat("offsets: a leaves", "o", "a", -1)
    s.beat("offsets: b leaves", "o", "b", -1)
    commit("by an administrator", 10, "", -1)
    s.ask("offsets: deleted", OFFSET_DELETE, 0, group_id="o", topics=[delete, other])
    s.ask("offsets: the group is deleted", DELETE, 2, groups_names=["o"])


def topic_changes(s: Script) -> None:
    """New partitions change the epoch; a deleted topic too."""
    s.join("topics: a", "t", "a", "audit-1", "coming")
    s.ask(
        "topics: more partitions",
        PARTITIONS,
        3,
        topics=[{"name": "audit-1", "count": 5, "assignments": None}],
        timeout=30_000,
        validate_only=False,
    )
    s.until("topics: a has more", lambda answer: answer["member_epoch"] > 2, HEARTBEAT, 1, **s.heartbeat("t", "a", 2))
    s.describe("topics: described", "t")
    s.ask("topics: deleted", 20, 5, topic_names=["audit-1"], timeout=30_000)

    def is_at(answer: dict[str, Any]) -> bool:
        return bool(answer["groups"][0]["group_epoch"] > 3)

    while True:  # each heartbeat says that nothing is left, so that the revocation is over at once
        epoch = s._epoch_of("t", "a")
        s._ask(HEARTBEAT, 1, s.heartbeat("t", "a", epoch, owned={}))
        if is_at(s._ask(DESCRIBE, 1, {"group_ids": ["t"], "include_authorized_operations": False})):
            break
    s.beat("topics: a has none", "t", "a", s._epoch_of("t", "a"), owned={})
    s.describe("topics: nothing is left", "t")


def settings(s: Script) -> None:
    """Properties of a group."""

    def alter(label: str, group: str, *changes: tuple[str, int, str | None]) -> None:
        configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
        resources = [{"resource_type": 32, "resource_name": group, "configs": configs}]
        s.ask(f"settings: {label}", CONFIGS, 1, resources=resources, validate_only=False)

    alter("set", "c", ("consumer.session.timeout.ms", 0, "1500"), ("consumer.heartbeat.interval.ms", 0, "300"))
    alter("unknown", "c", ("consumer.nonsense", 0, "1"))
    alter("no number", "c", ("consumer.session.timeout.ms", 0, "x"))
    alter("too short", "c", ("consumer.session.timeout.ms", 0, "100"))
    alter("too long", "c", ("consumer.session.timeout.ms", 0, "600000"))
    alter("no session left", "c", ("consumer.heartbeat.interval.ms", 0, "1500"))
    alter("no group", "", ("consumer.session.timeout.ms", 0, "1500"))
    s.until(
        "settings: the interval is the group's", lambda answer: answer["heartbeat_interval"] == 300, HEARTBEAT, 1,
        **s.heartbeat("c", "a", 0, rebalance_timeout=60_000, subscribed_topic_names=["logs"], owned={}),
    )  # fmt: skip
    s.join("settings: b joins and is not heard of again", "c", "b", "logs")
    s.beat("settings: a gives up", "c", "a", 2, owned={"logs": [0, 1, 2]})
    keys = ["consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms"]
    described = {"resource_type": 32, "resource_name": "c", "configuration_keys": keys}
    s.ask("settings: described", 32, 4, resources=[described], include_synonyms=True, include_documentation=False)
    described = {"resource_type": 32, "resource_name": "other", "configuration_keys": keys}
    s.ask("settings: of another", 32, 4, resources=[described], include_synonyms=True, include_documentation=False)
    s.ask("settings: listed", 74, 1, resource_types=[32])
    alter("removed", "c", ("consumer.session.timeout.ms", 1, None), ("consumer.heartbeat.interval.ms", 1, None))


def migration(s: Script) -> None:
    """A classic group becomes a consumer group and a classic one again."""
    protocols = [{"name": "range", "metadata": subscription("orders", owned={})}]

    def join(
        label: str, group: str, member: str, metadata: bytes | None = None, instance: str | None = None
    ) -> dict[str, Any]:
        used = protocols if metadata is None else [{"name": "range", "metadata": metadata}]
        return s.ask(
            f"migration: {label}", JOIN, 9, group_id=group, session_timeout=45_000, rebalance_timeout=60_000,
            member_id=member, group_instance_id=instance, protocol_type="consumer", protocols=used, reason="",
        )  # fmt: skip

    def sync(label: str, group: str, member: str, generation: int, parts: list[Any], **changes: Any) -> None:
        values = {
            "group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": None,
            "protocol_type": "consumer", "protocol_name": "range", "assignments": parts,
        }  # fmt: skip
        s.ask(f"migration: {label}", SYNC, 5, **(values | changes))

    def alive(label: str, group: str, member: str, generation: int) -> None:
        s.ask(
            f"migration: {label}",
            CLASSIC_HEARTBEAT,
            4,
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=None,
        )

    joined = s._ask(JOIN, 9, _join_values("m", "", protocols))
    classic = joined["member_id"]
    s._names[classic] = "the classic member"
    join("the classic member joins", "m", classic)
    everything = assignment({"orders": [0, 1, 2, 3, 4, 5]})
    sync("it assigns", "m", classic, 1, [{"member_id": classic, "assignment": everything}])
    s.list("migration: a classic group", types=("classic",))
    s.describe("migration: not a consumer group yet", "m")
    s.beat("migration: not a consumer group for who does not join", "m", "new", 1)
    s.join("migration: a consumer joins", "m", "new", "orders")
    s.describe("migration: a consumer group", "m")
    alive("it is to join again", "m", classic, 1)
    alive("an old generation", "m", classic, 0)
    sync("it is to join before it syncs", "m", classic, 1, [])
    join(
        "it joins with what it has",
        "m",
        classic,
        subscription("orders", owned={"orders": [0, 1, 2, 3, 4, 5]}, generation=1),
    )
    sync("it gets less", "m", classic, 1, [])
    alive("it is to join again, without", "m", classic, 1)
    join("it joins with less", "m", classic, subscription("orders", owned={"orders": [0, 1, 2]}, generation=1))
    sync("it has its part", "m", classic, 2, [])
    sync("another protocol", "m", classic, 2, [], protocol_name="roundrobin")
    alive("all is well", "m", classic, 2)
    alive("the other one does not speak classic", "m", "new", 2)
    s.beat("migration: the consumer has its part", "m", "new", 2)
    s.describe("migration: both have theirs", "m")
    s.ask(
        "migration: offsets of the classic member",
        COMMIT,
        9,
        group_id="m",
        generation_id_or_member_epoch=1,
        member_id=classic,
        group_instance_id=None,
        topics=[
            {
                "name": "orders",
                "partitions": [
                    {
                        "partition_index": 5,
                        "committed_offset": 1,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ],
            }
        ],
    )
    s.beat("migration: the consumer leaves", "m", "new", -1)
    s.list("migration: a classic group again", types=("classic",))
    s.describe("migration: no consumer group any more", "m")
    alive("it is to join the classic group", "m", classic, 2)
    join("it joins the classic group", "m", classic)
    sync("it assigns again", "m", classic, 4, [{"member_id": classic, "assignment": everything}])
    s.ask("migration: described", DESCRIBE_CLASSIC, 6, groups=["m"], include_authorized_operations=False)
    s.ask(
        "migration: it leaves",
        LEAVE,
        5,
        group_id="m",
        members=[{"member_id": classic, "group_instance_id": None, "reason": ""}],
    )
    s.join("migration: an empty classic group", "m", "later", "orders")
    s.describe("migration: has become a consumer group", "m")
    s.beat("migration: and is empty", "m", "later", -1)
    again = s._ask(JOIN, 9, _join_values("m", "", protocols))["member_id"]
    s._names[again] = "another classic member"
    join("a classic member of the empty consumer group", "m", again)
    s.ask(
        "migration: it leaves at the end",
        LEAVE,
        5,
        group_id="m",
        members=[{"member_id": again, "group_instance_id": None, "reason": ""}],
    )


def _join_values(group: str, member: str, protocols: list[Any]) -> dict[str, Any]:
    return {
        "group_id": group, "session_timeout": 45_000, "rebalance_timeout": 60_000, "member_id": member,
        "group_instance_id": None, "protocol_type": "consumer", "protocols": protocols, "reason": "",
    }  # fmt: skip


PARTS = (
    uniform,
    refused,
    first_version,
    static,
    ranges,
    heterogeneous,
    many,
    expressions,
    offsets,
    settings,
    migration,
    topic_changes,
    transactional,
)
