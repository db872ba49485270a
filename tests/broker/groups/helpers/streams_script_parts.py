"""The parts of the script (streams_script.py), each with groups of its own."""

from __future__ import annotations

from typing import Any

from tests.broker.groups.helpers.consumer_script import HEARTBEAT as CONSUMER_HEARTBEAT
from tests.broker.groups.helpers.consumer_script import JOIN, LEAVE, SYNC, Answer
from tests.broker.groups.helpers.streams_script import (
    ASSIGNMENT_DELAYED,
    DESCRIBE,
    HEARTBEAT,
    Script,
    subtopology,
    topic_info,
    topology,
)
from tests.broker.groups.helpers.transactional_script import COMMIT as TRANSACTIONAL_COMMIT
from tests.broker.groups.helpers.transactional_script import FIND, PRODUCER

COMMIT, FETCH, DESCRIBE_CLASSIC, DELETE, OFFSET_DELETE, PARTITIONS = 8, 9, 15, 42, 47, 37
METADATA, DESCRIBE_CONFIGS, CREATE, DELETE_TOPICS, CLASSIC_HEARTBEAT = 3, 32, 19, 20, 12
PLAIN = subtopology("0", "orders")
COUNTED = (
    subtopology("0", "orders", sinks=["c-rep"]),
    subtopology(
        "1", repartitions=["c-rep"],
        stores=[topic_info("c-store", cleanup_policy="compact", min_compaction_lag_ms="1000")],
    ),
)  # fmt: skip


def stateless(s: Script) -> None:
    """Members of three processes join, send heartbeats and leave."""
    s.join("plain: a joins", "p", "a", "A", PLAIN)
    s.describe("plain: not configured yet", "p")
    s.beat("plain: a again", "p", "a", 2)
    s.join("plain: b joins", "p", "b", "B", PLAIN)
    s.describe("plain: a is to give up", "p")
    s.beat("plain: a says nothing of what it has", "p", "a", 2)
    s.beat("plain: a still has all", "p", "a", 2, owned=[{"0": [0, 1, 2, 3, 4, 5]}])
    s.beat("plain: b waits", "p", "b", 3)
    s.beat("plain: a has given up", "p", "a", 2, owned=[{"0": [0, 1, 2]}])
    s.beat("plain: b gets its part", "p", "b", 3)
    s.describe("plain: stable", "p")
    s.beat("plain: the epoch before, with what it has", "p", "a", 2, owned=[{"0": [0, 1, 2]}])
    s.beat("plain: the epoch before, with more", "p", "a", 2, owned=[{"0": [0, 1, 2, 3]}])
    s.beat("plain: the epoch before, of another subtopology", "p", "a", 2, owned=[{"1": [0]}])
    s.beat("plain: the epoch before, without", "p", "a", 2)
    s.beat("plain: the epoch before, with a standby task", "p", "a", 2, owned=[{"0": [0]}, {"0": [1]}])
    s.join("plain: c of the first process", "p", "c", "A", PLAIN)
    has: dict[str, Any] = {"a": [{"0": [0, 1, 2]}], "b": [{"0": [3, 4, 5]}], "c": [{}]}
    s.settle("plain: three", "p", has, 4)
    s.describe("plain: three members", "p")
    s.join("plain: d of a third process", "p", "d", "C", PLAIN, rack_id="r", client_tags=[{"key": "k", "value": "v"}])
    has["d"] = [{}]
    s.settle("plain: four", "p", has, 5)
    s.describe("plain: four members", "p")
    s.list("plain: listed", types=("streams",))
    s.list("plain: listed by state", states=("Stable",))
    s.beat("plain: d leaves", "p", "d", -1)
    s.beat("plain: d is gone", "p", "d", 5)
    del has["d"]
    s.settle("plain: three again", "p", has, 6)
    s.join("plain: a joins again", "p", "a", "A", PLAIN)
    s.describe("plain: the same", "p")
    s.join("plain: a in another process", "p", "a", "B", PLAIN)
    s.describe("plain: another process", "p")
    s.beat("plain: c leaves", "p", "c", -1)
    s.beat("plain: b leaves", "p", "b", -1, shutdown_application=True)
    s.beat("plain: told to shut down", "p", "a", 0, rebalance_timeout=1, topology=topology(PLAIN), owned=())
    s.beat("plain: a leaves", "p", "a", -1)
    s.describe("plain: empty", "p")
    s.list("plain: listed when empty", types=("Streams",), states=("empty",))
    s.join("plain: a is back", "p", "a", "A", PLAIN)
    s.describe("plain: back", "p")


def refused(s: Script) -> None:
    """Invalid requests, and requests of unknown or fenced members."""

    def join(label: str, member: str = "m", group: str = "e", **changes: Any) -> None:
        s.join(f"refused: {label}", group, member, "A", PLAIN, **changes)

    join("no member id", "")
    join("no group", group="")
    join("a blank member id", " ")
    join("empty instance", instance_id=" ")
    join("an instance", instance_id="i")
    join("empty rack", rack_id="")
    join("no timeout", rebalance_timeout=-1)
    join("no topology", topology=None)
    join("active tasks", owned=[{"0": [1]}])
    join("standby tasks", owned=[{}, {"0": [1]}])
    join("warm-up tasks", owned=[{}, {}, {"0": [1]}])
    join("only active tasks", standby_tasks=None, warmup_tasks=None)
    join("tasks not named", active_tasks=None, standby_tasks=None, warmup_tasks=None, group="e1")
    offset = [{"subtopology_id": "0", "partition": 0, "offset": 1}]
    join("offsets", task_offsets=offset)
    join("end offsets", task_end_offsets=offset)
    s.beat("refused: epoch -2 without an instance", "e", "m", -2)
    s.beat("refused: epoch -3", "e", "m", -3)
    s.beat("refused: unknown group", "nothing", "m", 1)
    s.beat("refused: leaving an unknown group", "nothing", "m", -1)
    s.beat("refused: topology without joining", "e", "m", 1, topology=topology(PLAIN))
    join("m joins")
    s.beat("refused: epoch too large", "e", "m", 3)
    s.beat("refused: epoch too small", "e", "m", 1)
    s.beat("refused: unknown member", "e", "other", 2)
    s.beat("refused: unknown member leaves", "e", "other", -1)
    s.beat("refused: a task that is not there", "e", "m", 2, owned=[{"0": [6]}])
    s.beat("refused: a negative task", "e", "m", 2, owned=[{"0": [-1]}])
    s.beat("refused: a subtopology that is not there", "e", "m", 2, owned=[{"7": [0]}])
    s.beat("refused: a standby task that is not there", "e", "m", 2, owned=[{}, {"0": [9]}])
    s.beat("refused: one kind of tasks", "e", "m", 2, active_tasks=[])
    s.beat("refused: another timeout", "e", "m", 2, rebalance_timeout=50_000)
    s.beat("refused: another rack", "e", "m", 3, rack_id="r2")
    s.describe("refused: unknown, empty name", "nothing", "")
    s.ask("refused: described as a classic group", DESCRIBE_CLASSIC, 6, groups=["e"],
          include_authorized_operations=False)  # fmt: skip
    s.ask("refused: described as a consumer group", 69, 1, group_ids=["e"], include_authorized_operations=False)
    s.ask("refused: described as a share group", 77, 1, group_ids=["e"], include_authorized_operations=False)
    s.ask("refused: deleted with members", DELETE, 2, groups_names=["e"])
    for number in range(11):
        s.join(f"refused: member {number}", "e", chr(ord("a") + number), "A", PLAIN)
    join("one too many", "z")
    join("m again, when full")
    s.beat("refused: unknown member of a full group", "e", "z", 2)
    for name in (*map(chr, range(ord("a"), ord("a") + 11)), "m"):
        s.beat(f"refused: {name} leaves", "e", name, -1)
    s.describe("refused: empty", "e")
    s.ask("refused: deleted", DELETE, 2, groups_names=["e"])
    s.describe("refused: deleted group", "e")


def topologies(s: Script) -> None:
    """Topologies that are invalid or differ from the group's."""

    def join(label: str, *subtopologies: Any, group: str = "t", epoch: int = 0, member: str = "a") -> Answer:
        return s.join(f"topology: {label}", group, member, "A", topology=topology(*subtopologies, epoch=epoch))

    join("a changelog with partitions", subtopology("0", "orders", stores=[topic_info("x", 3)]))
    join("Kafka's own topics", subtopology("0", "__consumer_offsets", sinks=["__transaction_state"]))
    join("a name that is none", subtopology("0", "orders", stores=["no topic!"]), subtopology("1", ".."))
    join("an expression", subtopology("0", regexes=["or.*"]))
    join("no sink", subtopology("0", "orders"), subtopology("1", repartitions=["t-rep"]))
    join(
        "a loop", subtopology("0", "orders", sinks=["t-1"]), subtopology("1", repartitions=["t-1", "t-2"], sinks=[]),
        subtopology("2", repartitions=["t-3"], sinks=["t-2", "t-3"]),
    )  # fmt: skip
    join("no sources for a store", subtopology("0", stores=["t-store"]), group="t1")
    join("a source that is missing", subtopology("0", "nowhere", "orders", "elsewhere"), group="t2")
    s.describe("topology: not ready", "t2")
    s.beat("topology: still missing", "t2", "a", 2)
    s.describe("topology: still not ready", "t2")
    s.list("topology: not ready, listed", states=("NotReady",))
    s.list("topology: not ready, listed otherwise", states=("not_ready",))
    wanted: list[dict[str, Any]] = [
        {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        for name in ("nowhere", "elsewhere")
    ]
    s._ask(CREATE, 7, {"topics": wanted, "timeout": 30_000, "validate_only": False})
    s.until("topology: no longer missing", lambda answer: not answer["status"], HEARTBEAT, 0,
            **s.heartbeat("t2", "a", 2))  # fmt: skip
    s.describe("topology: ready", "t2")
    s._ask(DELETE_TOPICS, 5, {"topic_names": ["nowhere"], "timeout": 30_000})

    def until_missing() -> Answer:
        epoch = s._epoch_of("t2", "a")
        return s._ask(HEARTBEAT, 0, s.heartbeat("t2", "a", epoch, owned=()))

    while not (answer := until_missing())["status"]:
        pass
    s.answers["topology: missing again"] = s.shown(answer)
    s.describe("topology: not ready again", "t2")
    join("many that are missing", subtopology("0", *(f"n{number}" for number in range(5))), group="t3")
    unequal = subtopology("0", "orders", "clicks", together=[([0, 1], [])])
    join("unequal", unequal, group="t4")
    s.beat("topology: unequal, later", "t4", "a", 2)
    s.describe("topology: unequal, described", "t4")
    fixed = subtopology("1", "orders", repartitions=[topic_info("t-fixed", 4)], together=[([0], [0])])
    join("a fixed number that is another", subtopology("0", "clicks", sinks=["t-fixed"]), fixed, group="t5")
    both = subtopology(
        "1", repartitions=[topic_info("t-four", 4), topic_info("t-five", 5)], together=[([], [0, 1])]
    )  # fmt: skip
    join("two fixed numbers", subtopology("0", "clicks", sinks=["t-four", "t-five"]), both, group="t6")
    join("a topic of another number", subtopology("0", "orders", sinks=["small-rep"]),
         subtopology("1", repartitions=["small-rep"]), group="t7")  # fmt: skip
    join("epoch 3", PLAIN, group="t8", epoch=3)
    join("the same again", PLAIN, group="t8", epoch=3, member="b")
    join("behind", subtopology("0", "clicks"), group="t8", epoch=2, member="c")
    s.describe("topology: one is behind", "t8")
    s.beat("topology: still behind", "t8", "c", 4)
    join("another one of that epoch", subtopology("0", "clicks"), group="t8", epoch=3, member="d")
    join("a later one", PLAIN, group="t8", epoch=4, member="d")
    order = (subtopology("0", "orders"), subtopology("1", "clicks"))
    join("two subtopologies", *order, group="t9")
    join("in another order", *reversed(order), group="t9", member="b")
    join("epoch -1", PLAIN, group="t10", epoch=-1)
    join("behind with epoch -1", PLAIN, group="t9", epoch=-1, member="c")
    for together in (([2], []), ([-1], []), ([0], [1]), ([0], [-1])):
        join(f"together with {together}", subtopology("0", "orders", "clicks", sinks=["t-rep"], repartitions=["t-rep"],
             together=[together]), group="t11")  # fmt: skip
    s.describe("topology: refused", "t11")


def internal_topics(s: Script) -> None:
    """Repartition topics and changelogs are made."""
    s.join("internal: a joins", "c", "a", "A", *COUNTED)
    s.until_ready("internal: they are there", "c", "a", 2)
    s.describe("internal: described", "c")
    names = [{"topic_id": None, "name": name} for name in ("c-rep", "c-store")]
    values = {"topics": names, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    found = s._ask(METADATA, 12, values)["topics"]
    s.answers["internal: the topics"] = {
        topic["name"]: [topic["error_code"], len(topic["partitions"])] for topic in found
    }
    keys = ["cleanup.policy", "min.compaction.lag.ms"]
    described = [
        {"resource_type": 2, "resource_name": name, "configuration_keys": keys} for name in ("c-rep", "c-store")
    ]
    s.ask("internal: their configs", DESCRIBE_CONFIGS, 4, resources=described, include_synonyms=False,
          include_documentation=False)  # fmt: skip
    joined = (
        subtopology("0", "clicks", sinks=["j-rep", "j-big"]),
        subtopology(
            "1", "orders", repartitions=["j-rep", topic_info("j-big", 8)], stores=["j-store"], together=[([0], [0])],
        ),
        subtopology("2", "logs", sinks=["j-rep"]),
    )  # fmt: skip
    s.join("internal: a join", "j", "a", "A", *joined)
    s.until_ready("internal: the join's are there", "j", "a", 2)
    s.describe("internal: the join", "j")
    s.join(
        "internal: too many replicas", "i", "a", "A",
        subtopology("0", "logs", stores=[topic_info("i-store") | {"replication_factor": 3}]),
    )  # fmt: skip
    s.until(
        "internal: why not", lambda answer: "failed" in answer["status"][0]["status_detail"], HEARTBEAT, 0,
        **s.heartbeat("i", "a", 2),
    )  # fmt: skip
    s.describe("internal: not made", "i")


def standby(s: Script) -> None:
    """Stateful tasks with standby tasks, taken over when a process is gone."""
    store = subtopology("0", "orders", stores=["s-store"])
    s.set("s", "streams.num.standby.replicas", "1")
    s.join("standby: a joins", "s", "a", "A", store)
    s.until_ready("standby: the store is there", "s", "a", 2)
    s.describe("standby: nobody for them", "s")
    s.join("standby: b joins", "s", "b", "B", store)
    has: dict[str, Any] = {"a": [{"0": [0, 1, 2, 3, 4, 5]}, {}, {}], "b": [{}, {}, {}]}
    s.settle("standby: two", "s", has, 4)
    s.describe("standby: two processes", "s")
    s.join("standby: c joins", "s", "c", "B", store)
    has["c"] = [{}, {}, {}]
    s.settle("standby: three", "s", has, 5)
    s.describe("standby: three members", "s")
    s.join("standby: d joins", "s", "d", "C", store)
    has["d"] = [{}, {}, {}]
    s.settle("standby: four", "s", has, 6)
    s.describe("standby: four members", "s")
    s.beat("standby: d leaves", "s", "d", -1)
    del has["d"]
    s.settle("standby: without d", "s", has, 7)
    s.describe("standby: three processes less one", "s")
    s.set("s", "streams.num.standby.replicas", "2")
    s.settle("standby: two replicas", "s", has, 8)
    s.describe("standby: no room for two", "s")
    s.set("s", "streams.num.standby.replicas", "0")
    s.settle("standby: none", "s", has, 9)
    s.describe("standby: no replicas", "s")


def many(s: Script) -> None:
    """Ten members of four processes, three subtopologies of which two are stateful."""
    all_three = (
        subtopology("0", "orders", stores=["m-store"]),
        subtopology("1", "clicks", "views", together=[([0, 1], [])]),
        subtopology("2", "logs", stores=["m-logs"]),
    )
    s.set("m", "streams.num.standby.replicas", "1")
    s.join("many: a", "m", "a", "A", *all_three)
    s.until_ready("many: ready", "m", "a", 2)
    for number in range(1, 10):
        s.join(f"many: {number}", "m", chr(ord("a") + number), "ABCD"[number % 4], *all_three)
        s.describe(f"many: with {number}", "m")
    for name in ("j", "i", "h", "d"):
        s.beat(f"many: {name} leaves", "m", name, -1)
        s.beat(f"many: a, without {name}", "m", "a", s._epoch_of("m", "a"), owned=())
        s.describe(f"many: without {name}", "m")


def endpoints(s: Script) -> None:
    """Members send the endpoints of their interactive queries."""

    def at(port: int) -> dict[str, Any]:
        return {"host": "localhost", "port": port}

    store = subtopology("0", "orders", "clicks", stores=["e-store"])
    s.join("endpoint: a joins", "ep", "a", "A", store, user_endpoint=at(65_000), endpoint_information_epoch=-1)
    s.until_ready("endpoint: ready", "ep", "a", 2)
    s.beat("endpoint: a knows", "ep", "a", 3, endpoint_information_epoch=1)
    s.beat("endpoint: a does not know", "ep", "a", 3)
    s.join("endpoint: b joins", "ep", "b", "B", store, user_endpoint=at(7), endpoint_information_epoch=-1)
    s.beat("endpoint: a gives up", "ep", "a", 3, endpoint_information_epoch=-1)
    s.beat("endpoint: a has given up", "ep", "a", 3, owned=[{"0": [0, 1, 2]}])
    s.beat("endpoint: b gets", "ep", "b", 4)
    s.beat("endpoint: a hears of it", "ep", "a", 4, endpoint_information_epoch=1)
    s.join("endpoint: c has none", "ep", "c", "C", store)
    s.describe("endpoint: described", "ep")


def shutdown(s: Script) -> None:
    """One member requests a shutdown of the application."""
    s.join("shutdown: a joins", "sd", "a", "A", PLAIN)
    s.join("shutdown: b joins", "sd", "b", "B", PLAIN)
    s.beat("shutdown: b asks for it", "sd", "b", 3, shutdown_application=True)
    s.beat("shutdown: a hears of it", "sd", "a", 2)
    s.beat("shutdown: a asks too", "sd", "a", 2, shutdown_application=True)
    s.beat("shutdown: b leaves", "sd", "b", -1)
    s.beat("shutdown: a leaves", "sd", "a", -1)
    s.join("shutdown: a is back", "sd", "a", "A", PLAIN)


def delays(s: Script) -> None:
    """The first assignment waits for more members; the next one for the interval; and time-outs."""
    s.set("d", "streams.initial.rebalance.delay.ms", "1500")
    s.join("delay: a joins", "d", "a", "A", PLAIN)
    s.beat("delay: a goes on", "d", "a", 1)
    s.join("delay: b joins", "d", "b", "B", PLAIN)
    s.describe("delay: nothing is assigned", "d")

    def is_over(answer: Answer) -> bool:
        return all(status["status_code"] != ASSIGNMENT_DELAYED for status in answer["status"])

    s.until("delay: a is assigned", is_over, HEARTBEAT, 0, **s.heartbeat("d", "a", 1))
    s.beat("delay: b is assigned", "d", "b", 1)
    s.describe("delay: over", "d")
    s.set("d", "streams.assignment.interval.ms", "15000")
    s.join("delay: c joins", "d", "c", "C", PLAIN)
    s.describe("delay: not assigned anew", "d")
    s.set("d", "streams.assignment.interval.ms", "0")
    s.beat("delay: assigned anew", "d", "c", 3)
    s.describe("delay: all three", "d")
    s.set("x", "streams.heartbeat.interval.ms", "300")
    s.set("x", "streams.session.timeout.ms", "1000")
    s.join("time: a joins", "x", "a", "A", PLAIN)

    def is_empty(answer: Answer) -> bool:
        return bool(answer["groups"][0]["group_state"] == "Empty")

    described = {"group_ids": ["x"], "include_authorized_operations": False}
    s.until("time: a has gone", is_empty, DESCRIBE, 0, **described)
    s.join("time: a with little time", "y", "a", "A", PLAIN, rebalance_timeout=500)
    s.join("time: b", "y", "b", "B", PLAIN)
    s.beat("time: a is to give up", "y", "a", 2)
    values = s.heartbeat("y", "a", 2)
    s.until("time: a has not", lambda answer: answer["error_code"] != "none", HEARTBEAT, 0, **values)
    s.beat("time: b has all", "y", "b", 3)
    s.describe("time: b is alone", "y")


def offsets(s: Script) -> None:
    """Commits and fetches with member epochs, and deletion."""
    s.join("offsets: a", "o", "a", "A", subtopology("0", "orders"), subtopology("1", "logs"))

    def commit(label: str, version: int, member: str, epoch: int, partition: int = 0, topic: str = "orders") -> None:
        part = {"partition_index": partition, "committed_offset": 5, "committed_leader_epoch": -1,
                "committed_metadata": ""}  # fmt: skip
        s.ask(
            f"offsets: {label}", COMMIT, version, group_id="o", generation_id_or_member_epoch=epoch, member_id=member,
            group_instance_id=None, topics=[{"name": topic, "topic_id": s._ids[topic], "partitions": [part]}],
        )  # fmt: skip

    def fetch(label: str, version: int, member: str | None, epoch: int) -> None:
        topic = {"name": "orders", "topic_id": s._ids["orders"], "partition_indexes": [0, 1]}
        group = {"group_id": "o", "member_id": member, "member_epoch": epoch, "topics": [topic]}
        s.ask(f"offsets: {label}", FETCH, version, groups=[group], require_stable=False)

    commit("in its epoch", 9, "a", 2)
    commit("in its epoch, by id", 10, "a", 2, 1)
    commit("an old version", 8, "a", 2)
    commit("epoch too large", 9, "a", 3)
    commit("old epoch", 9, "a", 1)
    commit("of a topic that is not read", 9, "a", 2, topic="clicks")
    commit("old epoch, of a topic that is not read", 9, "a", 1, topic="clicks")
    commit("unknown member", 9, "b", 2)
    commit("nobody", 9, "", -1)
    fetch("fetched", 9, "a", 2)
    fetch("fetched by id", 10, "a", 2)
    fetch("fetched by nobody", 9, None, -1)
    fetch("fetched by a stranger", 9, "b", 2)
    fetch("fetched in another epoch", 9, "a", 1)
    fetch("fetched without an epoch", 9, "a", -1)
    s.join("offsets: b", "o", "b", "B", subtopology("0", "orders"), subtopology("1", "logs"))
    s.beat("offsets: a gives up", "o", "a", 2)
    commit("of what it gives up", 9, "a", 2, 4)
    owned = [{"0": [0, 1, 2, 3, 4, 5], "1": [0, 1, 2]}]
    s.beat("offsets: a has not yet", "o", "a", 2, owned=owned)
    described = s._ask(DESCRIBE, 0, {"group_ids": ["o"], "include_authorized_operations": False})["groups"][0]
    (kept,) = (one["assignment"]["active_tasks"] for one in described["members"] if one["member_id"] == "a")
    s.beat("offsets: a has given up", "o", "a", 2, active_tasks=kept, standby_tasks=[], warmup_tasks=[])
    commit("the epoch before, of what it kept", 10, "a", 2)
    for index in range(6):
        commit(f"the epoch before, of {index}", 9, "a", 2, index)
    commit("the epoch before, of the other subtopology", 9, "a", 2, 0, "logs")
    orders = {"name": "orders", "partitions": [{"partition_index": 0}]}
    clicks = {"name": "clicks", "partitions": [{"partition_index": 0}]}
    s.ask("offsets: deleted while subscribed", OFFSET_DELETE, 0, group_id="o", topics=[orders, clicks])
    s.beat("offsets: a leaves", "o", "a", -1)
    s.beat("offsets: b leaves", "o", "b", -1)
    commit("by an administrator", 10, "", -1)
    s.ask("offsets: deleted", OFFSET_DELETE, 0, group_id="o", topics=[orders, clicks])
    s.ask("offsets: the group is deleted", DELETE, 2, groups_names=["o"])
    fetch("after that", 9, None, -1)


def in_transactions(s: Script) -> None:
    """Offsets of members in a transaction."""

    def is_served(answer: Answer) -> bool:
        codes = [answer.get("error_code", "none"), *(one["error_code"] for one in answer.get("coordinators", ()))]
        return set(codes) == {"none"}

    s.wait(is_served, FIND, 4, key_type=1, coordinator_keys=["p"])
    made = s.wait(
        is_served, PRODUCER, 5, transactional_id="p", transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
    )
    producer = {name: made[name] for name in ("producer_id", "producer_epoch")}

    def commit(label: str, member: str, epoch: int, partition: int = 0, topic: str = "orders") -> None:
        part = {"partition_index": partition, "committed_offset": 7, "committed_leader_epoch": -1}
        s.ask(
            f"transactions: {label}", TRANSACTIONAL_COMMIT, 5, transactional_id="p", group_id="tx", **producer,
            topics=[{"name": topic, "partitions": [part | {"committed_metadata": ""}]}], generation_id=epoch,
            member_id=member, group_instance_id=None,
        )  # fmt: skip

    s.join("transactions: a joins", "tx", "a", "A", PLAIN)
    commit("in its epoch", "a", 2)
    commit("epoch too large", "a", 3)
    commit("old epoch", "a", 1)
    commit("old epoch, of another topic", "a", 1, topic="clicks")
    commit("unknown member", "b", 2)
    commit("nobody", "", -1)
    commit("a member without an epoch", "a", -1)
    s.join("transactions: b joins", "tx", "b", "B", PLAIN)
    s.beat("transactions: a gives up", "tx", "a", 2)
    s.beat("transactions: a has given up", "tx", "a", 2, owned=[{"0": [0, 1, 2]}])
    commit("the epoch before, of what it kept", "a", 2, 1)
    commit("the epoch before, of what it lost", "a", 2, 4)
    s._ask(26, 4, {"transactional_id": "p", **producer, "committed": False})


def other_kinds(s: Script) -> None:
    """Groups and members of other protocols."""
    s.join("kinds: a joins", "k", "a", "A", PLAIN)
    consumer: dict[str, Any] = {
        "group_id": "k", "member_id": "m", "member_epoch": 0, "instance_id": None, "rack_id": None,
        "rebalance_timeout": 60_000, "subscribed_topic_names": ["orders"], "subscribed_topic_regex": None,
        "server_assignor": None, "topic_partitions": [],
    }  # fmt: skip
    s.ask("kinds: a consumer", CONSUMER_HEARTBEAT, 1, **consumer)
    s.ask("kinds: a consumer goes on", CONSUMER_HEARTBEAT, 1, **(consumer | {"member_epoch": 1}))
    share = {
        "group_id": "k",
        "member_id": "m",
        "member_epoch": 0,
        "rack_id": None,
        "subscribed_topic_names": ["orders"],
    }
    s.ask("kinds: a member of a share group", 76, 1, **share)
    classic = {
        "group_id": "k", "session_timeout": 45_000, "rebalance_timeout": 60_000, "member_id": "m",
        "group_instance_id": None, "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"x"}],
        "reason": "",
    }  # fmt: skip
    s.ask("kinds: a classic member", JOIN, 9, **classic)
    s.ask("kinds: a classic member syncs", SYNC, 5, group_id="k", generation_id=1, member_id="m",
          group_instance_id=None, protocol_type="consumer", protocol_name="range", assignments=[])  # fmt: skip
    s.ask("kinds: a classic heartbeat", CLASSIC_HEARTBEAT, 4, group_id="k", generation_id=1, member_id="m",
          group_instance_id=None)  # fmt: skip
    s.ask("kinds: a classic member leaves", LEAVE, 5, group_id="k",
          members=[{"member_id": "m", "group_instance_id": None, "reason": ""}])  # fmt: skip
    s.beat("kinds: a leaves", "k", "a", -1)
    s.ask("kinds: a consumer of an empty one", CONSUMER_HEARTBEAT, 1, **consumer)
    joined = s._ask(JOIN, 9, classic | {"member_id": ""})
    s._names[joined["member_id"]] = "the classic member"
    s.ask("kinds: a classic member of an empty one", JOIN, 9, **(classic | {"member_id": joined["member_id"]}))
    s.describe("kinds: classic now", "k")
    s.join("kinds: no streams group any more", "k", "a", "A", PLAIN)
    s.beat("kinds: nor for who does not join", "k", "a", 1)
    s.beat("kinds: nor for who leaves", "k", "a", -1)
    s.ask("kinds: the classic member leaves", LEAVE, 5, group_id="k",
          members=[{"member_id": joined["member_id"], "group_instance_id": None, "reason": ""}])  # fmt: skip
    s.join("kinds: an empty classic group", "k", "a", "A", PLAIN)
    s.list("kinds: a streams group again", types=("streams", "classic"), states=("Stable",))
    part = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    s.ask("kinds: a simple group", COMMIT, 9, group_id="simple", generation_id_or_member_epoch=-1, member_id="",
          group_instance_id=None, topics=[{"name": "orders", "partitions": [part]}])  # fmt: skip
    s.join("kinds: a simple group becomes one", "simple", "a", "A", PLAIN)
    s.describe("kinds: simple no more", "simple")
    s.ask("kinds: a consumer elsewhere", CONSUMER_HEARTBEAT, 1, **(consumer | {"group_id": "kc"}))
    s.join("kinds: a consumer group", "kc", "a", "A", PLAIN)
    s.describe("kinds: of consumers", "kc")


def settings(s: Script) -> None:
    """Properties of a group."""
    s.alter("settings: set", "g", ("streams.session.timeout.ms", "50000"), ("streams.num.standby.replicas", "1"))
    s.alter("settings: no number", "g", ("streams.session.timeout.ms", "x"))
    s.alter("settings: too short", "g", ("streams.session.timeout.ms", "100"))
    s.alter("settings: too long", "g", ("streams.session.timeout.ms", "600000"))
    s.alter("settings: beats too seldom", "g", ("streams.heartbeat.interval.ms", "60000"))
    s.alter("settings: beats too often", "g", ("streams.heartbeat.interval.ms", "10"))
    s.alter("settings: too many replicas", "g", ("streams.num.standby.replicas", "3"))
    s.alter("settings: a negative delay", "g", ("streams.initial.rebalance.delay.ms", "-1"))
    s.alter("settings: a long interval", "g", ("streams.assignment.interval.ms", "60000"))
    keys = [
        "streams.session.timeout.ms", "streams.heartbeat.interval.ms", "streams.num.standby.replicas",
        "streams.initial.rebalance.delay.ms", "streams.assignment.interval.ms",
    ]  # fmt: skip
    described = {"resource_type": 32, "resource_name": "g", "configuration_keys": keys}
    s.ask("settings: described", DESCRIBE_CONFIGS, 4, resources=[described], include_synonyms=True,
          include_documentation=False)  # fmt: skip


def partitions_added(s: Script) -> None:
    """More partitions of a source."""
    store = subtopology("0", "views")
    s.join("partitions: a joins", "v", "a", "A", store)
    s._ask(PARTITIONS, 3, {"topics": [{"name": "views", "count": 6, "assignments": None}], "timeout": 30_000,
                           "validate_only": False})  # fmt: skip
    s.until(
        "partitions: a has more", lambda answer: answer["member_epoch"] > 2, HEARTBEAT, 0, **s.heartbeat("v", "a", 2)
    )
    s.describe("partitions: described", "v")
    grown = subtopology("0", "logs", stores=["v-store"])
    s.join("partitions: with a store", "w", "a", "A", grown)
    s.until_ready("partitions: it is there", "w", "a", 2)
    s._ask(PARTITIONS, 3, {"topics": [{"name": "logs", "count": 5, "assignments": None}], "timeout": 30_000,
                           "validate_only": False})  # fmt: skip
    s.until("partitions: more than the store has", lambda answer: answer["status"], HEARTBEAT, 0,
            **s.heartbeat("w", "a", 3))  # fmt: skip
    s.beat("partitions: and later", "w", "a", 3, owned=())
    s.describe("partitions: not ready", "w")


PARTS = (
    stateless,
    refused,
    topologies,
    internal_topics,
    standby,
    many,
    endpoints,
    shutdown,
    delays,
    offsets,
    in_transactions,
    other_kinds,
    settings,
    partitions_added,
)
