"""What a log says of an append."""

from __future__ import annotations

from typing import NamedTuple


class AppendInfo(NamedTuple):
    """What an append did. log_append_time_ms: -1 with CreateTime. duplicate: the offsets are those of the batch that
    the producer had sent before; nothing was appended."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
