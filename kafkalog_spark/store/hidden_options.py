"""Wrappers of option values that no repr, log or traceback shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A text that no repr, log or traceback shows. Compared, hashed and pickled as the text."""

    text: str

    def __repr__(self) -> str:
        return "***"


class HiddenOptions(dict[str, str]):
    """Options that may hold secrets: no repr shows their values."""

    def __repr__(self) -> str:
        return f"HiddenOptions({', '.join(self)})"
