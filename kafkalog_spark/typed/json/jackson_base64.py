"""Base64 as Jackson reads it (`Base64Variants.MIME_NO_LINEFEEDS`)."""

from __future__ import annotations

import binascii
import re

BASE64 = {c: i for i, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}
"""The six bits that each character stands for."""
_GROUPS = re.compile(r"(?:[\0- ]*[A-Za-z0-9+/]{2}(?:[A-Za-z0-9+/]{2}|[A-Za-z0-9+/]=|==))*[\0- ]*")


def base64_bytes(text: str) -> bytes:
    """Decode Base64. Padding is required; white space is allowed between groups of four characters.

    Raises:
        ValueError: If the text is not such Base64.
    """
    groups = _GROUPS.match(text)
    assert groups is not None
    if groups.end() < len(text):
        raise ValueError(f"illegal base64 content from character {groups.end()} on")
    return b"".join(map(binascii.a2b_base64, re.findall(r"[^\0- ]{4}", text)))
