"""The bytes of a JSON Web Key Set, from a file or a server. Who can send the broker elsewhere decides whose tokens it
takes: kafkalog_spark/http_client.py goes nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kafkalog_spark.http_client import HttpClient

MAX_BYTES = 1 << 20
"""A set of some hundred keys has a tenth of it."""


def read_jwks(url: str, clock: Callable[[], float]) -> bytes:
    """What the URL (file, http, https) holds. clock: seconds of a clock that never goes back.

    Raises OSError (TimeoutError too) or ValueError, with why.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        with Path(unquote(parts.path)).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES} bytes")
        return data
    answer = HttpClient(MAX_BYTES, {"Accept": "application/json"}, clock=clock).get(url)
    if answer.status != 200:
        raise ValueError(f"its server answers {answer.status} {answer.reason}")
    return answer.content
