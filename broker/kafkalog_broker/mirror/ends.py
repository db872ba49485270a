"""Ends of the source's logs at one moment: what a mirror with --once is to reach."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.mirror.answer_bounds import ImpossibleAnswer
from kafkalog_broker.mirror.fetch_outcome import Outcome, outcome_of_error
from kafkalog_broker.mirror.source import Source
from kafkalog_broker.mirror.source_questions import answered_offset, ask_offsets
from kafkalog_broker.protocol.fetch_client import Key
from kafkalog_broker.protocol.source_calls import LATEST, SourceCluster, SourceTopic

_log = logging.getLogger(__name__)


async def find_ends(
    source: Source, cluster: SourceCluster, topics: Mapping[str, SourceTopic]
) -> tuple[dict[Key, int], dict[str, str]] | None:
    """The high watermarks there are now, and why there is none, by the partition's name; None while a partition has no
    leader, or one that is not ready. Raises SourceUnreachable."""
    ends: dict[Key, int] = {}
    failed: dict[str, str] = {}
    by_leader: dict[int, list[Key]] = {}
    for name, topic in topics.items():
        for partition, place in topic.partitions.items():
            by_leader.setdefault(place.leader, []).append((name, partition))
    for node, keys in by_leader.items():
        if node not in cluster.nodes:
            return None
        connection = await source.connect(cluster.nodes[node])
        try:
            answered = await ask_offsets(connection, keys, LATEST)
        finally:
            await connection.aclose()
        for key, asked in answered.items():
            try:
                ends[key] = answered_offset(asked)
            except (BrokerError, ImpossibleAnswer) as error:
                _log.warning("%s-%d: %s", *key, error)
                if outcome_of_error(asked.error) is Outcome.ASK_AGAIN:
                    return None
                failed["{}-{}".format(*key)] = str(error)
    return ends, failed
