"""Numbers of bytes on the command line."""

from __future__ import annotations

import argparse
import re


def parse_bytes(text: str) -> int:
    """Parse a number of bytes such as `500k` or `50M`. Raises argparse.ArgumentTypeError."""
    size = re.fullmatch(r"(\d+)([kMG]?)", text)
    if size is None or not int(size[1]):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of bytes, such as 500k or 50M")
    return int(size[1]) * {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}[size[2]]
