"""Sums of lag over all committed offsets; the largest of them one by one."""

from __future__ import annotations

import heapq

from kafkalog_spark.report.facts import LagFacts, TopicLag

MOST_LAGS = 500
"""Committed offsets that are shown, those with the largest lag first."""
MOST_TOPICS = 8
"""Topics of a group with a lag of their own, those with the largest: as many colours as can be told apart."""


class LagTotals:
    """Takes committed offsets in any order. Holds a number for each group and topic, and 2 * MOST_LAGS offsets."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, int]] = {}
        self._kept: list[LagFacts] = []

    def add(self, lag: LagFacts) -> None:
        """The next committed offset."""
        if lag.lag is not None:
            sums = self._sums.setdefault(lag.group_id, {})
            sums[lag.topic] = sums.get(lag.topic, 0) + lag.lag
        self._kept.append(lag)
        if len(self._kept) >= 2 * MOST_LAGS:
            self._kept = list(self.largest())

    def largest(self) -> tuple[LagFacts, ...]:
        """At most MOST_LAGS of what was added, those with the largest lag first."""
        order = sorted(self._kept, key=lambda lag: (-(lag.lag or 0), lag.group_id, lag.topic, lag.partition))
        return tuple(order[:MOST_LAGS])

    def by_topic(self) -> tuple[TopicLag, ...]:
        """Of all that was added. Groups with the largest lag first, of each the topics with the largest first; the
        topics after MOST_TOPICS of them are one sum, with None for a topic."""
        made: list[TopicLag] = []
        for group, sums in sorted(self._sums.items(), key=lambda item: (-sum(item[1].values()), item[0])):
            first = heapq.nsmallest(MOST_TOPICS, sums.items(), key=lambda item: (-item[1], item[0]))
            made += [TopicLag(group, topic, lag) for topic, lag in first]
            if len(sums) > len(first):
                made.append(TopicLag(group, None, sum(sums.values()) - sum(lag for _, lag in first)))
        return tuple(made)
