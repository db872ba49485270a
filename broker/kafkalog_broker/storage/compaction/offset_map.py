"""Offset map of the cleaner: the latest offset of each key in the dirty part of a log (Kafka: `SkimpyOffsetMap`).

As in Kafka, an entry consists of a 16-byte hash of the key and an 8-byte offset, without the key itself. Two keys with
the same hash would count as one key, and the older record would be lost. The hash is therefore SipHash-2-4 with 128
bits and a secret seed, which is drawn for each cleaning. With n keys the probability of a collision is n^2 / 2^129,
below 10^-22 for a hundred million keys. Kafka uses MD5, whose collisions can be constructed.
"""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from kafkalog_broker.config.broker_config_checks import CLEANER_MAP_ENTRY_BYTES
from kafkalog_broker.storage.compaction.offset_map_kernel import MapState, MapStatus, map_messages, map_records

ENTRY_SIZE = CLEANER_MAP_ENTRY_BYTES


class OffsetMap:
    """Hash table from keys to their latest offset.

    Attributes:
        table: Entries; see `MapSlot`.
        hash_seed: Secret seed of the hash; see `HashSeed`.
    """

    def __init__(self, memory: int, load_factor: float, offsets: int, hash_seed: tuple[int, int] | None = None) -> None:
        """Create an empty map.

        Args:
            memory: Largest size of the table in bytes.
            load_factor: Share of the table that may be filled.
            offsets: Number of offsets in the dirty part; the map never needs more entries.
            hash_seed: Two uint64, random by default.

        Raises:
            ValueError: If not even one key fits.
        """
        room = memory // ENTRY_SIZE
        capacity = int(room * load_factor)
        if capacity < 1:
            raise ValueError(
                f"no key fits into {memory} bytes filled to {load_factor:g}: raise log.cleaner.dedupe.buffer.size or "
                f"log.cleaner.io.buffer.load.factor, or lower log.cleaner.threads"
            )
        # One slot always stays empty, because a search ends there.
        slots = max(min(room, int(offsets / load_factor) + 1), 2)
        self.table = np.zeros((slots, 3), np.uint64)
        self.hash_seed = np.array(hash_seed or (secrets.randbits(64), secrets.randbits(64)), np.uint64)
        self._state = np.array([0, min(capacity, slots - 1), -1], np.int64)

    def __len__(self) -> int:
        return int(self._state[MapState.ENTRIES])

    @property
    def latest_offset(self) -> int:
        """Offset up to which every key is in the map; -1 for an empty map."""
        return int(self._state[MapState.LATEST])

    def advance(self, offset: int) -> None:
        """Raise `latest_offset` over a gap without records."""
        self._state[MapState.LATEST] = offset

    def add_records(
        self,
        payload: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        units: npt.NDArray[np.int64],
        from_offset: int,
    ) -> bool:
        """Add the keys of v2 batches (see `map_records`). Returns False if the map is full."""
        status = map_records(payload, starts, ends, units, from_offset, self.table, self.hash_seed, self._state)
        return bool(status == MapStatus.DONE)

    def add_messages(self, payload: npt.NDArray[np.uint8], messages: npt.NDArray[np.int64]) -> bool:
        """Add the keys of messages in format v0 or v1 (see `map_messages`). Returns False if the map is full."""
        return bool(map_messages(payload, messages, self.table, self.hash_seed, self._state) == MapStatus.DONE)
