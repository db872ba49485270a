"""Commits of a stream's position as offsets of a consumer group, so that Kafka's tools show its lag (`commitGroup`).

The query's position is that of the checkpoint; the group's offsets are never read. Commits are sent to the group's
coordinator without membership (generation -1, as in kafka-consumer-groups.sh --reset-offsets). A broker accepts them as
long as the group has no members.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet

from kafkalog_spark.errors import GroupCommitFailed
from kafkalog_spark.source.group_client import REQUEST_SECONDS, AdminGroupClient, Errors
from kafkalog_spark.source.offsets import Offsets
from kafkalog_spark.source.options import CommitGroup
from kafkalog_spark.source.topic_partitions import tp_text

COMMIT_WAIT_SECONDS = 5.0
"""How long a trigger waits for the response to its commit, because the process may end after the trigger
(Trigger.AvailableNow). After a failed commit, triggers do not wait."""
RETRY_SECONDS = 5.0  # delay after a failed commit

_log = logging.getLogger(__name__)


class GroupCommitter:
    """Commits the positions of a query, without blocking the query while the broker does not respond.

    A position is the offset of the next record to read, as in Kafka. Unchanged positions are not sent again.
    """

    def __init__(
        self, settings: CommitGroup, client: AdminGroupClient, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._client = client
        self._clock_s = clock_s
        self._position: Offsets = {}
        self._committed: Offsets = {}
        self._sent: Offsets = {}
        self._pending: Future[Errors] | None = None
        self._failed_at: float | None = None
        self._last_warning = ""

    def commit(self, offsets: Offsets) -> None:
        """Commit the offsets up to which the query has finished all batches.

        Raises:
            GroupCommitFailed: With failOnCommitError. Otherwise a failure is logged, and retried later.
        """
        self._position = offsets
        self._settle(0.0)
        self._send_changes()

    def close(self) -> None:
        """Wait for a pending commit, then commit the position that was not sent while it was pending.

        After a failure nothing more is sent; the next run of the query commits its position.
        """
        self._settle(COMMIT_WAIT_SECONDS)
        if self._failed_at is None:
            self._send_changes()

    def _send_changes(self) -> None:
        """Commit the offsets that changed, unless a commit is pending or has failed a short time ago."""
        changed = {
            tp: offset for tp, offset in self._position.items() if offset >= 0 and self._committed.get(tp) != offset
        }
        is_backing_off = self._failed_at is not None and self._clock_s() - self._failed_at < RETRY_SECONDS
        if not changed or self._pending is not None or is_backing_off:
            return
        self._sent, self._pending = changed, self._client.commit(self._settings.group, changed)
        if self._settings.fail:
            self._settle(2 * REQUEST_SECONDS)  # the client times out before that, unless it hangs
            if self._pending is not None:
                self._fail(GroupCommitFailed(f"no response within {2 * REQUEST_SECONDS:.0f} s"))
        elif self._failed_at is None:
            self._settle(COMMIT_WAIT_SECONDS)

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
            cause = self._client.last_connection_error()
            if cause and cause not in error.what:
                error.what += f" ({cause})"
            self._fail(error)
            return
        self._pending = None
        self._committed |= {tp: offset for tp, offset in self._sent.items() if tp not in errors}
        if errors:
            first = min(errors)
            more = f", and {len(errors) - 1} more partitions" if len(errors) > 1 else ""
            self._fail(GroupCommitFailed(f"{errors[first]}{more}", topic_partition=tp_text(first)))
            return
        if self._last_warning:
            _log.warning("committing offsets to consumer group '%s' works again", self._settings.group)
        self._failed_at, self._last_warning = None, ""

    def _fail(self, error: GroupCommitFailed) -> None:
        self._failed_at = self._clock_s()
        error.what = f"offsets were not committed to consumer group '{self._settings.group}': {error.what}"
        error.hint = error.hint or f"brokers: {self._settings.settings['bootstrap.servers']}"
        if self._settings.fail:
            raise error
        if str(error) != self._last_warning:
            self._last_warning = str(error)
            _log.warning("%s; the query continues, and the commit will be retried", error)
