"""The packages of the extra [broker]: kafkalog installed for Spark alone comes without them."""

from __future__ import annotations

_NEEDED = ("kio", "cryptography")  # uvloop is used where it is installed, and missed nowhere


def what_is_missing(error: ModuleNotFoundError) -> str | None:
    """One sentence on a failed import, for whoever asked for the broker; None: the module is not one of the extra's."""
    missing = (error.name or "").partition(".")[0]
    if missing not in _NEEDED:
        return None
    return (
        f"the broker needs the package {missing}, which comes with the extra [broker]: pip install 'kafkalog[broker]'"
    )
