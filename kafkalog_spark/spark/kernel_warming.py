"""Compilation of the kernels by a background process, which starts when a read is planned."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterable
from functools import cache

from kafkalog_spark.kernels.cache_directories import has_compiled

_log = logging.getLogger(__name__)

_LARGEST_KERNELS = {
    "read": "kafkalog_spark.kernels.decode_v2",
    "json": "kafkalog_spark.typed.json.kernel",
    "avro": "kafkalog_spark.typed.avro.kernel",
    "protobuf": "kafkalog_spark.typed.protobuf.kernel",
}
"""Module of the largest kernel of each group of kernels for reading; see kafkalog_spark.warm.GROUPS."""
_is_compiled = cache(has_compiled)  # called at every load; a compiled kernel stays compiled
_warming: list[subprocess.Popen[bytes]] = []
"""The compiling process, of which this process starts at most one."""


def warm_in_background(formats: Iterable[str]) -> None:
    """Start a process that compiles the kernels of a read, unless they are compiled already.

    The driver calls this when it plans a load. The first task that needs a kernel waits for the process.

    Args:
        formats: Formats of values and keys.
    """
    names = (*(format.removeprefix("confluent-") for format in formats), "read")
    groups = [name for name in names if name in _LARGEST_KERNELS and not _is_compiled(_LARGEST_KERNELS[name])]
    if groups and not _warming:
        _log.warning("compiling kernels in the background, once on this machine: %s", ", ".join(groups))
        command = [sys.executable, "-m", "kafkalog_spark.warm", "--only", ",".join(groups)]
        silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        _warming.append(subprocess.Popen(command, start_new_session=True, **silent))  # type: ignore[call-overload]
