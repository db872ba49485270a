"""Commits of a stream's position as offsets of a consumer group, so that Kafka's tools show its lag (`commitGroup`).

The checkpoint remains the source of truth: nothing is read back from the group. Commits go to the group's coordinator
as those of a client without membership (generation -1, as in kafka-consumer-groups.sh --reset-offsets). A broker
accepts them as long as the group has no members. confluent-kafka's admin client sends them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any

from kafkalog_spark.errors import GroupCommitFailed, install_hint
from kafkalog_spark.source.offsets import Offsets, TopicPartition, tp_text
from kafkalog_spark.source.options import CommitGroup
from kafkalog_spark.spark import librdkafka

REQUEST_SECONDS = 10.0  # timeout of a commit
PATIENCE_SECONDS = 5.0
"""How long a trigger waits for a commit that it has just sent: the process may end after it (Trigger.AvailableNow).
After a failed commit no trigger waits."""
RETRY_SECONDS = 5.0  # delay after a failed commit

_log = logging.getLogger(__name__)

Errors = Mapping[TopicPartition, str]


class GroupCommitter:
    """Commits the positions that a query reaches, without blocking it while the broker does not respond.

    A position is the offset behind the last one that was read. Unchanged positions are not sent again.
    """

    def __init__(
        self, settings: CommitGroup, client: AdminGroupClient, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._client = client
        self._clock_s = clock_s
        self._committed: Offsets = {}
        self._sent: Offsets = {}
        self._pending: Future[Errors] | None = None
        self._failed_at: float | None = None
        self._warned = ""

    def reached(self, offsets: Offsets) -> None:
        """Commit the offsets up to which the query has finished all batches.

        Raises:
            GroupCommitFailed: With failOnCommitError. Otherwise a failure is logged, and retried later.
        """
        self._settle(0.0)
        changed = {tp: offset for tp, offset in offsets.items() if offset >= 0 and self._committed.get(tp) != offset}
        waits = self._failed_at is not None and self._clock_s() - self._failed_at < RETRY_SECONDS
        if not changed or self._pending is not None or waits:
            return
        self._sent, self._pending = changed, self._client.commit(self._settings.group, changed)
        if self._settings.fail:
            self._settle(2 * REQUEST_SECONDS)  # the client times out before that, unless it hangs
            if self._pending is not None:
                self._fail(GroupCommitFailed(f"no answer in {2 * REQUEST_SECONDS:.0f} s"))
        elif self._failed_at is None:
            self._settle(PATIENCE_SECONDS)

    def close(self) -> None:
        """Wait for a pending commit."""
        self._settle(PATIENCE_SECONDS)

    def _settle(self, seconds: float) -> None:
        """Process the response to the pending commit, waiting at most `seconds` for it."""
        if self._pending is None:
            return
        try:
            errors = self._pending.result(seconds)
        except NotYet:
            return
        except GroupCommitFailed as error:
            self._pending = None
            why = self._client.why()
            if why and why not in error.what:
                error.what += f" ({why})"
            self._fail(error)
            return
        self._pending = None
        self._committed |= {tp: offset for tp, offset in self._sent.items() if tp not in errors}
        if errors:
            first = min(errors)
            more = f", and {len(errors) - 1} more partitions" if len(errors) > 1 else ""
            self._fail(GroupCommitFailed(f"{errors[first]}{more}", topic_partition=tp_text(first)))
            return
        if self._warned:
            _log.warning("offsets are committed to consumer group '%s' again", self._settings.group)
        self._failed_at, self._warned = None, ""

    def _fail(self, error: GroupCommitFailed) -> None:
        self._failed_at = self._clock_s()
        error.what = f"offsets were not committed to consumer group '{self._settings.group}': {error.what}"
        error.hint = error.hint or f"brokers: {self._settings.settings['bootstrap.servers']}"
        if self._settings.fail:
            raise error
        if str(error) != self._warned:
            self._warned = str(error)
            _log.warning("%s; the query goes on, and the commit is tried again", error)


class AdminGroupClient:
    """Sends commits with confluent-kafka's admin client. Raises as `librdkafka.made`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._why = ""

        def make() -> Any:
            from confluent_kafka.admin import AdminClient

            # Without log_level it would write to stderr at every attempt to connect. Our warning has the same text.
            return AdminClient({"log_level": 0, **settings, "error_cb": self._remember})

        self._admin = librdkafka.made(
            make, "commitGroup", f"{install_hint('producer')} on the driver", "with commitGroup they are librdkafka's"
        )

    def commit(self, group: str, offsets: Offsets) -> Future[Errors]:
        """Send a commit.

        The result of the future is the errors by partition. It raises GroupCommitFailed if the whole commit failed.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions
        from confluent_kafka import TopicPartition as Position

        self._why = ""
        positions = [Position(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())]
        of_group = [ConsumerGroupTopicPartitions(group, positions)]
        answers = self._admin.alter_consumer_group_offsets(of_group, request_timeout=REQUEST_SECONDS)
        result: Future[Errors] = Future()
        answers[group].add_done_callback(lambda answer: self._pass_on(answer, result))
        return result

    def why(self) -> str:
        """Return the last connection error, which a response does not contain; empty if there is none."""
        self._admin.poll(0)  # calls _remember for connection errors
        return self._why

    def _remember(self, error: Any) -> None:
        self._why = error.str()

    @staticmethod
    def _pass_on(answer: Future[Any], result: Future[Errors]) -> None:
        failed = answer.exception()
        if failed is not None:
            error = failed.args[0] if failed.args else failed
            result.set_exception(GroupCommitFailed(_text(error) if hasattr(error, "str") else str(error)))
            return
        positions = answer.result().topic_partitions
        result.set_result({(p.topic, p.partition): _text(p.error) for p in positions if p.error is not None})


def _text(error: Any) -> str:
    text: str = error.str()
    if error.name() in ("UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP"):
        text += " (the group has members; name a group that only this query commits to)"
    return text
