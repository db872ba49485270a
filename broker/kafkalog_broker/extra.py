"""The packages of the extras [broker], [metrics] and [mirror]: kafkalog for Spark alone comes without them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

_NEEDED = {
    "kio": ("the broker", "broker"),
    "cryptography": ("the broker", "broker"),
    "joserfc": ("the broker", "broker"),
    "prometheus_client": ("--metrics", "metrics"),
    "aiokafka": ("a mirror", "mirror"),
}
"""By package: who needs it, and the extra that brings it. uvloop is used where it is installed, and missed nowhere."""


@contextlib.contextmanager
def without_hypothesis() -> Iterator[None]:
    """For the imports of a command. kio's types bring hypothesis along where that is installed, for strategies of tests
    that nobody here asks for: a fifth of the start, and 10 MB. It stays importable for whoever wants it afterwards."""
    unwanted = "hypothesis" not in sys.modules
    if unwanted:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]  # the way to say that it cannot be imported
    try:
        yield
    finally:
        if unwanted:
            del sys.modules["hypothesis"]


def what_is_missing(error: ModuleNotFoundError) -> str | None:
    """One sentence on a failed import, for whoever asked for the broker; None: the module is not one of an extra's."""
    missing = (error.name or "").partition(".")[0]
    if missing not in _NEEDED:
        return None
    who, extra = _NEEDED[missing]
    return f"{who} needs the package {missing}, which comes with the extra [{extra}]: pip install 'kafkalog[{extra}]'"
