"""Client side of a fetch session (KIP-227, Kafka: `FetchSessionHandler`): only changes are sent again."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_broker.protocol.mirror_messages import Key, SourceFetchPartition, SourceFetchRequest

_FINAL_EPOCH, _FIRST_EPOCH = -1, 0
_MAX_EPOCH = 2**31 - 1


class ClientSession:
    """Without sessions (Fetch before 7, or a broker that creates none) every request names all partitions."""

    def __init__(self, *, is_served: bool) -> None:
        self._is_served = is_served
        self._id = 0
        self._epoch = _FIRST_EPOCH
        self._known: dict[Key, SourceFetchPartition] = {}

    def next(self, wanted: Mapping[Key, SourceFetchPartition]) -> SourceFetchRequest:
        """Return the next request for `wanted`. Call `answered` or `reset` before the following one."""
        if not self._is_served:
            return SourceFetchRequest((0, _FINAL_EPOCH), list(wanted.items()), [])
        if self._epoch == _FIRST_EPOCH:
            self._known = dict(wanted)
            return SourceFetchRequest((0, _FIRST_EPOCH), list(wanted.items()), [])
        # A topic that was created again has a new ID; the partition is forgotten under the old ID and added again.
        forgotten = [
            (key, known.topic_id)
            for key, known in self._known.items()
            if key not in wanted or wanted[key].topic_id != known.topic_id
        ]
        changed = [(key, fetch) for key, fetch in wanted.items() if self._known.get(key) != fetch]
        self._known = dict(wanted)
        return SourceFetchRequest((self._id, self._epoch), changed, forgotten)

    def answered(self, session_id: int) -> None:
        """Advance the session after a response without an error."""
        if self._epoch == _FIRST_EPOCH:
            self._id = session_id
            if not session_id:
                return
        self._epoch = self._epoch + 1 if self._epoch < _MAX_EPOCH else 1

    def reset(self) -> None:
        """Start a new session with the next request."""
        self._epoch = _FIRST_EPOCH
