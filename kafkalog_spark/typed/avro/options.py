"""The options of `from_avro`, as far as they say how values are read."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.avro.types import MAX_RECURSION, AvroMeaning
from kafkalog_spark.typed.ddl import schema_text, switch
from kafkalog_spark.typed.decoder import ResolvedFormat

READER_OPTIONS: Mapping[str, str] = {
    "avroSchema": "Reader schema: JSON, or a file of it. Values are read as it says, by Avro's rules of evolution.",
    "avroSchemaUrl": "The same, as a file alone.",
    "enableStableIdentifiersForUnionType": "Fields of a union of several types are called after the types.",
    "stableIdentifierPrefixForUnionType": "And begin with this; by default `member_`.",
    "recursiveFieldMaxDepth": "How deep a recursive schema is read, 1 to 15. Without it, one is refused.",
    "datetimeRebaseMode": "CORRECTED, which is Spark's default. EXCEPTION and LEGACY are refused.",
}


def meaning_of(options: Mapping[str, str]) -> AvroMeaning:
    """Raises OptionError for what is refused."""
    rebase = options.get("datetimerebasemode", "CORRECTED")
    if rebase.upper() != "CORRECTED":
        raise OptionError(
            f"option 'datetimeRebaseMode' is '{rebase}': dates and timestamps are read as they are stored, CORRECTED"
        )
    text = options.get("recursivefieldmaxdepth", "-1")
    try:
        depth = int(text)
    except ValueError:
        raise OptionError(f"option 'recursiveFieldMaxDepth' is '{text}': expected 1 to {MAX_RECURSION}") from None
    if depth > MAX_RECURSION:
        raise OptionError(f"option 'recursiveFieldMaxDepth' is {depth}: expected 1 to {MAX_RECURSION}")
    stable = switch("enableStableIdentifiersForUnionType", options.get("enablestableidentifiersforuniontype"))
    return AvroMeaning(stable, options.get("stableidentifierprefixforuniontype", "member_"), depth)


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
