"""Characters that kernels look for, by name: bytes of ASCII, and so of UTF-8."""

from __future__ import annotations

from enum import IntEnum


class Char(IntEnum):
    """ASCII."""

    TAB = 9
    NEWLINE = 10
    RETURN = 13
    SPACE = 32
    QUOTE = 34
    PLUS = 43
    COMMA = 44
    MINUS = 45
    DOT = 46
    SLASH = 47
    ZERO = 48
    NINE = 57
    COLON = 58
    BRACKET = 91
    BACKSLASH = 92
    BRACKET_END = 93
    BRACE = 123
    BRACE_END = 125
