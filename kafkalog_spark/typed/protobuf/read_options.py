"""Options of Spark's from_protobuf that choose the types of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import boolean, option, parse_fields, specs_of
from kafkalog_spark.typed.schema_limits import depth_parser

MAX_RECURSION = 10  # the largest `recursive.fields.max.depth` that Spark allows


def _unsupported(name: str, text: str) -> bool:
    if boolean(name, text):
        raise OptionError(f"option '{name}' is not supported by kafkalog", hint="Spark's from_protobuf supports it")
    return False


@dataclass(frozen=True, kw_only=True)
class ProtobufReadOptions:
    """Parsed options. `recursion` is the maximum depth of recursive messages; below 1, they are refused."""

    max_depth: int = option("recursive.fields.max.depth", depth_parser(MAX_RECURSION, strict=False), "-1")
    emit_defaults: bool = option("emit.default.values", boolean, "false")
    enums_as_ints: bool = option("enums.as.ints", boolean, "false")
    upcast_unsigned: bool = option("upcast.unsigned.ints", boolean, "false")
    empty_messages: bool = option("retain.empty.message.types", _unsupported, "false")
    plain_wrappers: bool = option("unwrap.primitive.wrapper.types", _unsupported, "false")
    any_as_json: bool = option("convert.any.fields.to.json", _unsupported, "false")


OPTIONS = specs_of(ProtobufReadOptions)


def read_options_of(options: Mapping[str, str]) -> ProtobufReadOptions:
    """Parse options, by lower-case name. Raises OptionError for an invalid value."""
    return ProtobufReadOptions(**parse_fields(ProtobufReadOptions, options))
