"""The options of `from_avro`, as far as they say how values are read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, boolean, parsed, plain_text
from kafkalog_spark.typed.avro.types import MAX_RECURSION, AvroMeaning
from kafkalog_spark.typed.ddl import depth, schema_text
from kafkalog_spark.typed.decoder import ResolvedFormat


def _corrected(name: str, text: str) -> str:
    if text.upper() != "CORRECTED":
        raise OptionError(f"option '{name}' is '{text}': dates and timestamps are read as they are stored, CORRECTED")
    return text


_spec = partial(OptionSpec, group="format")
READER_OPTIONS = (
    _spec(
        "avroSchema",
        plain_text,
        None,
        "Reader schema: JSON, or a file of it. Values are read as it says, by Avro's rules of evolution.",
    ),
    _spec("avroSchemaUrl", plain_text, None, "The same, as a file alone."),
    _spec(
        "enableStableIdentifiersForUnionType",
        boolean,
        "false",
        "Fields of a union of several types are called after the types.",
    ),
    _spec("stableIdentifierPrefixForUnionType", plain_text, "member_", "And begin with this."),
    _spec(
        "recursiveFieldMaxDepth",
        depth(MAX_RECURSION, strict=True),
        "-1",
        "How deep a recursive schema is read, 1 to 15. Without it, one is refused.",
    ),
    _spec("datetimeRebaseMode", _corrected, "CORRECTED", "EXCEPTION and LEGACY are refused."),
)


def meaning_of(options: Mapping[str, str]) -> AvroMeaning:
    """Raises OptionError for what is refused."""
    given = parsed(READER_OPTIONS, options)
    return AvroMeaning(
        given["enableStableIdentifiersForUnionType"],
        given["stableIdentifierPrefixForUnionType"],
        given["recursiveFieldMaxDepth"],
    )


def reader_text(format: ResolvedFormat) -> str | None:
    """The reader schema as it was looked up, or as the options say it. Raises OptionError."""
    options = format.options
    if format.reader_text is not None:
        return format.reader_text
    if "avroschema" in options:
        return schema_text("avroSchema", options["avroschema"])
    if "avroschemaurl" in options:
        return schema_text("avroSchemaUrl", options["avroschemaurl"])
    return None
