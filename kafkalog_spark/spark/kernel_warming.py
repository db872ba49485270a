"""Compilation of the kernels by a process in the background, from the moment a read is planned."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterable
from functools import cache

from kafkalog_spark.kernels.cache_directories import has_compiled

_log = logging.getLogger(__name__)

_KERNELS = {
    "read": "kafkalog_spark.kernels.decode_v2",
    "json": "kafkalog_spark.typed.json.kernel",
    "avro": "kafkalog_spark.typed.avro.kernel",
    "protobuf": "kafkalog_spark.typed.protobuf.kernel",
}
"""Module of the largest kernel of each group of reading kernels; see kafkalog_spark.warm."""
_is_compiled = cache(has_compiled)  # called at every load; a compiled kernel stays compiled
_warming: list[subprocess.Popen[bytes]] = []
"""The compiling process. A process starts at most one."""


def warm_in_background(formats: Iterable[str]) -> None:
    """Start a process that compiles the kernels of a read, unless they are compiled already.

    The driver calls this when it plans a load. The first task that needs a kernel waits for the process.

    Args:
        formats: Formats of values and keys.
    """
    names = (*(format.removeprefix("confluent-") for format in formats), "read")
    groups = [name for name in names if name in _KERNELS and not _is_compiled(_KERNELS[name])]
    if groups and not _warming:
        _log.warning("compiling kernels, once on this machine: %s; takes about 10 s", ", ".join(groups))
        command = [sys.executable, "-m", "kafkalog_spark.warm", "--only", ",".join(groups)]
        silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        _warming.append(subprocess.Popen(command, start_new_session=True, **silent))  # type: ignore[call-overload]
