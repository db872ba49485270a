"""What a parser of JSON is asked for and gives, in Jackson's words: features and limits, tokens, the error."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Token(Enum):
    """Of Jackson's JsonToken those that a text can give."""

    START_OBJECT = "{"
    END_OBJECT = "}"
    START_ARRAY = "["
    END_ARRAY = "]"
    NAME = "name"
    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    TRUE = "true"
    FALSE = "false"
    NULL = "null"


class JsonError(Exception):
    """What Jackson throws as a JsonProcessingException."""


@dataclass(frozen=True)
class Features:
    """What else than JSON is read: JsonReadFeature, and the limits of StreamReadConstraints (characters, levels)."""

    comments: bool = False
    unquoted_names: bool = False
    single_quotes: bool = True
    leading_zeros: bool = False
    non_numeric: bool = True
    any_escape: bool = False
    control_characters: bool = False
    max_depth: int = 1000
    max_number: int = 1000
    max_string: int = 20_000_000
