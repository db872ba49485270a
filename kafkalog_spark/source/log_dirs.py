"""Log directories with decoded values, for use without Spark: `kafkalog_spark.LogDirs`.

dirs = LogDirs.open("/data/kafka-logs")
for batch in dirs.scan("orders", value_format="json", value_schema="id bigint, user string"):
    batch["value"]                  # struct<id: int64, user: string>
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog_spark.log import log_dir
from kafkalog_spark.typed.ddl import schema_of_ddl
from kafkalog_spark.typed.decoder import ValueDecoder, decode_column
from kafkalog_spark.typed.formats import ResolvedFormat, SchemaSources

if TYPE_CHECKING:
    from kafkalog_spark.log.decode.scan_request import ScanRequest


class LogDirs(log_dir.LogDirs):
    """`log.log_dir.LogDirs` with formats for values and keys."""

    def scan(  # type: ignore[override]
        self,
        topic: str | None = None,
        request: ScanRequest | None = None,
        *,
        value_format: str | None = None,
        value_schema: str | pa.Schema | None = None,
        value_options: Mapping[str, str] | None = None,
        key_format: str | None = None,
        key_schema: str | pa.Schema | None = None,
        key_options: Mapping[str, str] | None = None,
        **options: object,
    ) -> Iterator[pa.RecordBatch]:
        """Yield records as `log.log_dir.LogDirs.scan`. With a format, the column `value` or `key` is a struct.

        If a value cannot be decoded, its fields are null, as in mode PERMISSIVE.

        Args:
            topic: As in `log.log_dir.LogDirs.scan`.
            request: As in `log.log_dir.LogDirs.scan`.
            value_format: Format of the values (docs/typed.md).
            value_schema: DDL or Arrow schema of the wanted fields; None for the schema of the format or its options.
            value_options: Options of the format.
            key_format: Format of the keys.
            key_schema: As value_schema.
            key_options: As value_options.
            **options: As in `log.log_dir.LogDirs.scan`.

        Raises:
            OptionError: For options that the format refuses.
        """
        from kafkalog_spark.log.decode.record_schema import COLUMNS

        decoders: dict[str, ValueDecoder] = {}
        for column, name, schema, given in (
            ("value", value_format, value_schema, value_options),
            ("key", key_format, key_schema, key_options),
        ):
            if name is not None:
                sources = SchemaSources(column, () if topic is None else (topic,), self.keys_and_values)
                texts = {option.lower(): text for option, text in (given or {}).items()}
                format = ResolvedFormat.of(name, texts, sources)
                wanted = schema_of_ddl(schema) if isinstance(schema, str) else schema
                decoders[column] = format.decoder(format.schema() if wanted is None else wanted)
        columns: Any = options.get("columns", COLUMNS) if request is None else request.columns
        needs_headers = any(getattr(decoder, "needs_headers", False) for decoder in decoders.values())
        add_headers = needs_headers and "headers" not in columns
        if add_headers:
            with_headers = (*columns, "headers")
            if request is None:
                options["columns"] = with_headers
            else:
                request = replace(request, columns=with_headers)
        for batch in super().scan(topic, request, **options):  # type: ignore[arg-type]
            for column, decoder in decoders.items():
                index = batch.schema.get_field_index(column)
                if index >= 0:
                    decoded = decode_column(decoder, batch, column).columns
                    batch = batch.set_column(index, pa.field(column, decoded.type), decoded)
            yield batch.drop_columns(["headers"]) if add_headers else batch
