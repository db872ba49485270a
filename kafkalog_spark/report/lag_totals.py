"""Totals of the lag over all committed offsets, and the largest lags one by one."""

from __future__ import annotations

from kafkalog_spark.report import facts

MAX_LAGS = 500  # committed offsets that are shown, those with the largest lag first
MAX_TOPICS_PER_GROUP = 8
"""Topics of a group that are shown alone, those with the largest lag: the number of colours that are easy to
distinguish."""


class LagTotals:
    """Totals of committed offsets, which are added in any order.

    Holds a number for each group and topic, and at most 2 * MAX_LAGS committed offsets.
    """

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, int]] = {}
        self._kept: list[facts.Row] = []

    def add(self, row: facts.Row) -> None:
        """Add a row of the table `consumer_offsets`."""
        if row["lag"] is not None:
            sums = self._sums.setdefault(row["group_id"], {})
            sums[row["topic"]] = sums.get(row["topic"], 0) + row["lag"]
        self._kept.append(row)
        if len(self._kept) >= 2 * MAX_LAGS:
            self._kept = list(self.largest())

    def largest(self) -> tuple[facts.Row, ...]:
        """Return the MAX_LAGS rows with the largest lags, the largest first."""
        self._kept.sort(key=lambda row: (-(row["lag"] or 0), row["group_id"], row["topic"], row["partition"]))
        return tuple(self._kept[:MAX_LAGS])

    def by_topic(self) -> tuple[facts.TopicLag, ...]:
        """Return the lags by group and topic, groups and topics with the largest lag first.

        All topics of a group after the first MAX_TOPICS_PER_GROUP are one sum without a topic.
        """
        lags: list[facts.TopicLag] = []
        for group, sums in sorted(self._sums.items(), key=lambda item: (-sum(item[1].values()), item[0])):
            ordered = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
            lags += [facts.TopicLag(group, topic, lag) for topic, lag in ordered[:MAX_TOPICS_PER_GROUP]]
            if len(ordered) > MAX_TOPICS_PER_GROUP:
                lags.append(facts.TopicLag(group, None, sum(lag for _, lag in ordered[MAX_TOPICS_PER_GROUP:])))
        return tuple(lags)
