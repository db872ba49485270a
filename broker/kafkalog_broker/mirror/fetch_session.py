"""A fetch session as its client keeps it (KIP-227, FetchSessionHandler): only what changed is sent again."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_broker.protocol.mirror_messages import FetchCall, FetchFrom, Key

_FINAL_EPOCH, _FIRST_EPOCH = -1, 0
_MAX_EPOCH = 2**31 - 1


class ClientSession:
    """Without sessions (Fetch below 7, or a server that gives none) every request names all partitions."""

    def __init__(self, *, is_served: bool) -> None:
        self._is_served = is_served
        self._id = 0
        self._epoch = _FIRST_EPOCH
        self._known: dict[Key, FetchFrom] = {}

    def next(self, wanted: Mapping[Key, FetchFrom]) -> FetchCall:
        """The request that asks for `wanted`, after which `answered` or `reset` must come."""
        if not self._is_served:
            return FetchCall((0, _FINAL_EPOCH), list(wanted.items()), [])
        if self._epoch == _FIRST_EPOCH:
            self._known = dict(wanted)
            return FetchCall((0, _FIRST_EPOCH), list(wanted.items()), [])
        # A topic made anew is another one: the old one is forgotten, and comes with its own id.
        forgotten = [
            (key, known.topic_id)
            for key, known in self._known.items()
            if key not in wanted or wanted[key].topic_id != known.topic_id
        ]
        changed = [(key, fetch) for key, fetch in wanted.items() if self._known.get(key) != fetch]
        self._known = dict(wanted)
        return FetchCall((self._id, self._epoch), changed, forgotten)

    def answered(self, session_id: int) -> None:
        """The request was answered without an error."""
        if self._epoch == _FIRST_EPOCH:
            self._id = session_id
            if not session_id:
                return
        self._epoch = self._epoch + 1 if self._epoch < _MAX_EPOCH else 1

    def reset(self) -> None:
        """Begin anew with the next request: the server does not know the session, or nothing is known of it."""
        self._epoch = _FIRST_EPOCH
