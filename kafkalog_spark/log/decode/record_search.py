"""Which records are looked for by what they hold, and the search of batches for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_spark.kernels.rows import Status
from kafkalog_spark.kernels.search import Condition, Patterns, search_legacy, search_v2, steps_of
from kafkalog_spark.log.decode.record_schema import RecordPredicate

_FEW = 4096
"""Matches of some batches for which there is room to begin with; where there are more, they are searched again."""


class Found(NamedTuple):
    """hits: bool[n], batches with a match. offsets: int64, of the matches, in order. stopped: the batch where `status`,
    a fault, was found; n and DONE where there is none. Nothing of that batch or after it is in the others."""

    hits: npt.NDArray[np.bool_]
    offsets: npt.NDArray[np.int64]
    stopped: int
    status: int


@dataclass(frozen=True, slots=True)
class RecordSearch:
    """The conditions as kernels take them."""

    patterns: Patterns

    @classmethod
    def of(cls, wanted: RecordPredicate) -> RecordSearch:
        given = {
            Condition.KEY: wanted.key,
            Condition.PREFIX: wanted.key_prefix,
            Condition.PART: wanted.value_contains,
            Condition.HEADER: wanted.header_name,
            Condition.HEADER_VALUE: wanted.header_value,
        }
        asked = np.zeros(len(Condition), np.int64)
        for condition, pattern in given.items():
            asked[condition] = pattern is not None
        key, prefix, part, header, value = (np.frombuffer(pattern or b"", np.uint8) for pattern in given.values())
        return cls(Patterns(asked, key, prefix, part, steps_of(wanted.value_contains or b""), header, value))

    def find(self, payload: npt.NDArray[np.uint8], run: Any, *, legacy: bool) -> Found:
        """Search the batches of a run (run_decoder.Chosen), whose records lie in `payload`."""
        search = search_legacy if legacy else search_v2
        hits = np.zeros(len(run), np.uint8)
        found = np.empty(_FEW, np.int64)
        while True:
            matches, stopped, status = search(payload, run.starts, run.ends, run.units, found, hits, self.patterns)
            if matches <= len(found):
                break
            found = np.empty(matches, np.int64)
        hits[stopped:] = 0
        return Found(hits.view(bool), found[:matches], int(stopped), int(Status(status)))
