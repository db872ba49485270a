"""Client side of a fetch session (KIP-227, Kafka: `FetchSessionHandler`).

In a session, each request names only the partitions that changed since the previous one.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_broker.protocol.mirror_fetch_messages import SourceFetchPartition, SourceFetchRequest
from kafkalog_broker.protocol.mirror_messages import Key

_FINAL_EPOCH, _FIRST_EPOCH = -1, 0
_MAX_EPOCH = 2**31 - 1


class ClientSession:
    """Fetch session with one broker.

    If the broker has no sessions (Fetch before version 7) or does not create one, every request names all partitions.
    """

    def __init__(self, *, is_served: bool) -> None:
        self._is_served = is_served
        self._id = 0
        self._epoch = _FIRST_EPOCH
        self._session_partitions: dict[Key, SourceFetchPartition] = {}

    def next_request(self, wanted: Mapping[Key, SourceFetchPartition]) -> SourceFetchRequest:
        """Return a request for the partitions `wanted`. Call `advance` or `reset` before the next call."""
        if not self._is_served:
            return SourceFetchRequest((0, _FINAL_EPOCH), list(wanted.items()), [])
        if self._epoch == _FIRST_EPOCH:
            self._session_partitions = dict(wanted)
            return SourceFetchRequest((0, _FIRST_EPOCH), list(wanted.items()), [])
        # A topic that was created again has a new ID; the partition is forgotten under the old ID and added again.
        forgotten = [
            (key, sent.topic_id)
            for key, sent in self._session_partitions.items()
            if key not in wanted or wanted[key].topic_id != sent.topic_id
        ]
        changed = [(key, fetch) for key, fetch in wanted.items() if self._session_partitions.get(key) != fetch]
        self._session_partitions = dict(wanted)
        return SourceFetchRequest((self._id, self._epoch), changed, forgotten)

    def advance(self, session_id: int) -> None:
        """Advance the session after a response without an error."""
        if self._epoch == _FIRST_EPOCH:
            self._id = session_id
            if not session_id:
                return
        self._epoch = self._epoch + 1 if self._epoch < _MAX_EPOCH else 1

    def reset(self) -> None:
        """Start a new session with the next request."""
        self._epoch = _FIRST_EPOCH
