"""Options of other sinks and of Kafka's tools: which are ignored, which are refused, and their names here."""

from __future__ import annotations

from kafkalog_spark.spark import librdkafka

REFUSED = {
    f"kafka.{side}.serializer": (
        f"Kafka option '{side}.serializer' is not supported as {side}s are serialized with ByteArraySerializer."
    )
    for side in ("key", "value")
}
"""Options that Spark's Kafka connector refuses as well, with its messages."""

SUGGESTED_OPTIONS = {
    "topics": "topic",
    "compression": "compression.type",
    "compressiontype": "compression.type",
    "compressioncodec": "compression.type",
    "codec": "compression.type",
    "num.partitions": "numPartitions",
    "partitions": "numPartitions",
    "directory": "path",
    "log.dirs": "path",
    "maxrequestsize": "max.message.bytes",
    "bootstrap.servers": "kafka.bootstrap.servers",
}
"""Names in other sinks, Kafka's tools and its configuration, in lower case -> the option that is suggested."""

IGNORED = {
    "includeHeaders": "headers are written if the rows have a column `headers`.",
    "kafka.*": "settings of a producer, which exists only with `kafka.bootstrap.servers`.",
    **{f"kafka.{name}": why for name, why in librdkafka.PRODUCER_WITHOUT_EFFECT.items()},
}
"""Options that are accepted without effect, and why."""
