"""Options of Spark's from_avro that choose the types of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, boolean, option, parse_fields, plain_text, specs_of
from kafkalog_spark.typed.avro.schema import AvroType
from kafkalog_spark.typed.schema_limits import depth_parser

MAX_RECURSION = 15  # the largest `recursiveFieldMaxDepth` that Spark allows


def _corrected(name: str, text: str) -> str:
    if text.upper() != "CORRECTED":
        raise OptionError(f"option '{name}' is '{text}': dates and timestamps are read as they are stored, CORRECTED")
    return text


@dataclass(frozen=True, kw_only=True)
class AvroReadOptions:
    """Parsed options. `recursion` is the maximum depth of recursive records; below 1, they are refused."""

    stable_ids: bool = option("enableStableIdentifiersForUnionType", boolean, "false")
    prefix: str = option("stableIdentifierPrefixForUnionType", plain_text, "member_")
    max_depth: int = option("recursiveFieldMaxDepth", depth_parser(MAX_RECURSION, strict=True), "-1")
    rebase: str = option("datetimeRebaseMode", _corrected, "CORRECTED")

    def member_name(self, i: int, branch: AvroType) -> str:
        """Return the name of the struct field for a branch of a union of several types.

        Args:
            i: Index of the branch, not counting null.
            branch: The branch.
        """
        return f"{self.prefix}{branch.short_name}" if self.stable_ids else f"member{i}"


OPTIONS = (OptionSpec("avroSchema", plain_text), OptionSpec("avroSchemaUrl", plain_text), *specs_of(AvroReadOptions))


def read_options_of(options: Mapping[str, str]) -> AvroReadOptions:
    """Parse options, by lower-case name. Raises OptionError for an invalid value."""
    return AvroReadOptions(**parse_fields(AvroReadOptions, options))
