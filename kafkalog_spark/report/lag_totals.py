"""Totals of the lag over all committed offsets, and the largest lags one by one."""

from __future__ import annotations

from kafkalog_spark.report import facts

MOST_LAGS = 500  # committed offsets that are shown, those with the largest lag first
MOST_TOPICS = 8
"""Topics of a group with a lag of their own, those with the largest: as many colours as can be told apart."""


class LagTotals:
    """Takes committed offsets in any order. Holds a number for each group and topic, and 2 * MOST_LAGS offsets."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, int]] = {}
        self._kept: list[facts.Row] = []

    def add(self, row: facts.Row) -> None:
        """row: of the table `consumer_offsets`."""
        if row["lag"] is not None:
            sums = self._sums.setdefault(row["group_id"], {})
            sums[row["topic"]] = sums.get(row["topic"], 0) + row["lag"]
        self._kept.append(row)
        if len(self._kept) >= 2 * MOST_LAGS:
            self._kept = list(self.largest())

    def largest(self) -> tuple[facts.Row, ...]:
        """At most MOST_LAGS of what was added, those with the largest lag first."""
        self._kept.sort(key=lambda row: (-(row["lag"] or 0), row["group_id"], row["topic"], row["partition"]))
        return tuple(self._kept[:MOST_LAGS])

    def by_topic(self) -> tuple[facts.TopicLag, ...]:
        """Lag by group and topic: groups with the largest lag first, and within each the topics with the largest first;
        the topics after MOST_TOPICS of them are one sum, with None for a topic."""
        made: list[facts.TopicLag] = []
        for group, sums in sorted(self._sums.items(), key=lambda item: (-sum(item[1].values()), item[0])):
            ordered = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
            made += [facts.TopicLag(group, topic, lag) for topic, lag in ordered[:MOST_TOPICS]]
            if len(ordered) > MOST_TOPICS:
                made.append(facts.TopicLag(group, None, sum(lag for _, lag in ordered[MOST_TOPICS:])))
        return tuple(made)
