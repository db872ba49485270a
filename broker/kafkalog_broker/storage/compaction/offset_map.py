"""The cleaner's map: for each key of the dirty part of a log, the offset of its latest record (SkimpyOffsetMap).

A table of 24 bytes a key, 16 of hash and 8 of offset, as Kafka's: keys themselves are not kept. Two keys with one hash
would be taken for one key, and the older one's value would be lost, so the hash is SipHash-2-4 with 128 bits under a
secret that is drawn for each cleaning. With n keys the chance of any such pair is n^2 / 2^129: below 10^-22 for a
hundred million keys. Kafka takes MD5, which gives the same for keys of chance, but keys of one MD5 can be made on
purpose; without the secret nobody can make keys of one SipHash, and a pair that met once does not meet again.
"""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from kafkalog_broker.config.broker_config_checks import CLEANER_MAP_ENTRY_BYTES
from kafkalog_broker.storage.compaction.offset_map_kernel import MapState, MapStatus, map_messages, map_records

ENTRY_SIZE = CLEANER_MAP_ENTRY_BYTES


class OffsetMap:
    """memory: bytes of the table, at most. load_factor: share of it that may be filled. offsets: that the dirty part
    spans; a table for so many keys is enough. secret: two uint64, drawn by default. Raises ValueError when not even two
    keys find room."""

    def __init__(self, memory: int, load_factor: float, offsets: int, secret: tuple[int, int] | None = None) -> None:
        room = memory // ENTRY_SIZE
        most = int(room * load_factor)
        if most < 1:
            raise ValueError(
                f"{memory} bytes filled to {load_factor:g} hold no key: raise log.cleaner.dedupe.buffer.size or "
                f"log.cleaner.io.buffer.load.factor, or lower log.cleaner.threads"
            )
        # One slot is always empty: a search ends there.
        slots = max(min(room, int(offsets / load_factor) + 1), 2)
        self.table = np.zeros((slots, 3), np.uint64)
        self.secret = np.array(secret or (secrets.randbits(64), secrets.randbits(64)), np.uint64)
        self._state = np.array([0, min(most, slots - 1), -1], np.int64)

    def __len__(self) -> int:
        return int(self._state[MapState.ENTRIES])

    @property
    def latest_offset(self) -> int:
        """Every key of a record at or below it is in the map; -1 while there is none."""
        return int(self._state[MapState.LATEST])

    def advance(self, offset: int) -> None:
        self._state[MapState.LATEST] = offset

    def add_records(
        self,
        payload: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        units: npt.NDArray[np.int64],
        from_offset: int,
    ) -> bool:
        """Add the keys of v2 batches (see map_records); False when the map is full."""
        status = map_records(payload, starts, ends, units, from_offset, self.table, self.secret, self._state)
        return bool(status == MapStatus.DONE)

    def add_messages(self, payload: npt.NDArray[np.uint8], messages: npt.NDArray[np.int64]) -> bool:
        return bool(map_messages(payload, messages, self.table, self.secret, self._state) == MapStatus.DONE)
