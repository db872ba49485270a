"""Processing a streams topology takes time linear in its size, in any order of its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kafkalog_broker.api.groups.streams_group_structs import MAX_TOPOLOGY_ELEMENTS
from kafkalog_broker.groups.streams.configured_topology import configure_topology
from kafkalog_broker.groups.streams.streams_group_status import StatusCode
from kafkalog_broker.groups.streams.topology import CopartitionGroup, Subtopology, TopicInfo
from kafkalog_broker.groups.streams.topology import Topology as StreamsTopology
from tests.broker.api.helpers.admin_scenario import create, new_topic
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.groups.helpers.streams_script import Script, subtopology

LENGTH = 60


class Watched(tuple[TopicInfo, ...]):
    """Repartition source topics that count how often they are read."""

    reads = 0

    def __iter__(self) -> Iterator[TopicInfo]:
        self.reads += 1
        return super().__iter__()


def internal(name: str, partitions: int = 0) -> TopicInfo:
    return TopicInfo(name, partitions, 0, ())


def test_repartition_counts_of_a_reversed_chain_read_each_subtopology_a_fixed_number_of_times() -> None:
    def reads(length: int) -> int:
        chain = tuple(
            Subtopology(
                f"s{n}", ("orders",) if n == 0 else (), (), (), (f"r{n}",) if n + 1 < length else (),
                Watched([internal(f"r{n - 1}")] if n else []), (),
            )
            for n in reversed(range(length))
        )  # fmt: skip
        fitted = configure_topology(StreamsTopology(0, chain), {"orders": 3}.get)
        assert fitted.problem is not None
        assert fitted.problem.code is StatusCode.MISSING_INTERNAL_TOPICS
        assert {topic.partitions for topic in fitted.missing_topics.values()} == {3}
        return max(topics.reads for each in chain if isinstance(topics := each.repartition_source_topics, Watched))

    assert reads(LENGTH) == reads(4)


def test_empty_copartition_groups_do_not_look_up_the_fixed_repartition_topics_again() -> None:
    looked_up: Counter[str] = Counter()

    def partition_count(name: str) -> int | None:
        looked_up[name] += 1
        return {"orders": 1}.get(name)

    fixed = tuple(internal(f"r{n}", 1) for n in range(LENGTH))
    groups = (CopartitionGroup((), (), ()),) * LENGTH
    source = Subtopology("s", ("orders",), (), (), (), fixed, groups)
    configure_topology(StreamsTopology(0, (source,)), partition_count)
    assert max(looked_up.values()) < 10


def test_topology_with_too_many_parts_is_refused_before_the_group_is_made(tmp_path: Path) -> None:
    with BrokerInProcess(tmp_path, {"offsets.topic.num.partitions": "1"}) as process:
        key, _, values = create(new_topic("orders", 1))
        process.ask(request_entity(key, 7, values, {}))
        process.ask(request_entity(10, 0, {"key": "app", "key_type": 0}, {}))
        script = Script(lambda *_: {}, {})
        for groups, code in ((MAX_TOPOLOGY_ELEMENTS // 2, "invalid_request"), (3, "none")):
            stated = subtopology("0", "orders", together=[([0], [])] * groups)
            answer = process.ask(request_entity(88, 0, script.joining("app", "m", "P", stated), {}))
            assert answer.error_code.name == code
