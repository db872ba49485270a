"""The packages of the extras [broker] and [mirror]: kafkalog installed for Spark alone comes without them."""

from __future__ import annotations

_NEEDED = {
    "kio": ("the broker", "broker"),
    "cryptography": ("the broker", "broker"),
    "aiokafka": ("a mirror", "mirror"),
}
"""By package: who needs it, and the extra that brings it. uvloop is used where it is installed, and missed nowhere."""


def what_is_missing(error: ModuleNotFoundError) -> str | None:
    """One sentence on a failed import, for whoever asked for the broker; None: the module is not one of an extra's."""
    missing = (error.name or "").partition(".")[0]
    if missing not in _NEEDED:
        return None
    who, extra = _NEEDED[missing]
    return f"{who} needs the package {missing}, which comes with the extra [{extra}]: pip install 'kafkalog[{extra}]'"
