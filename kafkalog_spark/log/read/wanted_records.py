"""Conditions on what a record holds, as they are asked for. Values only: no kernel is loaded for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WantedRecords:
    """All conditions that are not None must hold. header_value: with a header_name only; both of one header. A key or
    value that is null matches nothing, not even an empty pattern."""

    key: bytes | None = None
    key_prefix: bytes | None = None
    value_contains: bytes | None = None
    header_name: bytes | None = None
    header_value: bytes | None = None

    def __bool__(self) -> bool:
        """Whether there is a condition."""
        return self != EVERY_RECORD


EVERY_RECORD = WantedRecords()
"""No condition."""
