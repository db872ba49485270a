"""Base64 as Jackson reads it."""

from __future__ import annotations

import binascii
import re

BASE64 = {c: i for i, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}
_BASE64_GROUPS = re.compile(r"(?:[\0- ]*[A-Za-z0-9+/]{2}(?:[A-Za-z0-9+/]{2}|[A-Za-z0-9+/]=|==))*[\0- ]*")


def base64_bytes(text: str) -> bytes:
    """Base64 by Jackson's MIME_NO_LINEFEEDS: with padding, white space between groups of four. Raises ValueError."""
    groups = _BASE64_GROUPS.match(text)
    assert groups is not None
    if groups.end() < len(text):
        raise ValueError(f"illegal base64 content from character {groups.end()} on")
    return b"".join(map(binascii.a2b_base64, re.findall(r"[^\0- ]{4}", text)))
