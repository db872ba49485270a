"""Options of other connectors and of Kafka's tools: which are ignored, which are refused, and their names here."""

from __future__ import annotations

_NO_GROUP = "there is no consumer group; see `commitGroup`."
_NOTHING_FETCHED = "no records are fetched from a broker."

IGNORED_OF_CONNECTOR = {
    "kafka.bootstrap.servers": "no broker is read from; `commitGroup` commits offsets to this cluster.",
    "kafka.group.id": _NO_GROUP,
    "groupIdPrefix": _NO_GROUP,
    "kafkaConsumer.pollTimeoutMs": _NOTHING_FETCHED,
    "fetchOffset.numRetries": _NOTHING_FETCHED,
    "fetchOffset.retryIntervalMs": _NOTHING_FETCHED,
    "kafka.*": "every other setting of a Kafka consumer; with `commitGroup`, those of the connection are used "
    "(`kafka.security.protocol`, `kafka.sasl.*`, `kafka.ssl.*`, `kafka.client.id`, `kafka.socket.*`).",
}
"""Options of Spark's Kafka connector that are accepted without effect, and why."""

IGNORED = IGNORED_OF_CONNECTOR | {
    "maxFilesPerTrigger": "an option of Spark's file sources; see `maxOffsetsPerTrigger` and `maxBytesPerTrigger`.",
}
"""Options of other sources that are accepted without effect, and why."""

SUGGESTED_OPTIONS = {
    "topic": "subscribe",
    "topics": "subscribe",
    "topicpattern": "subscribePattern",
    "pattern": "subscribePattern",
    "partition": "assign",
    "partitions": "assign",
    "topicpartitions": "assign",
    "offset": "startingOffsets",
    "offsets": "startingOffsets",
    "auto.offset.reset": "startingOffsets",
    "isolation.level": "isolationLevel",
    "readcommitted": "isolationLevel",
    "headers": "includeHeaders",
    "where.value": "where.value.contains",
    "where.headers": "where.header",
    "groupid": "commitGroup",
    "group.id": "commitGroup",
    "consumergroup": "commitGroup",
    "select": "columns",
    "log.dirs": "path",
    "logdirs": "path",
    "directory": "path",
}
"""Names in other connectors, Kafka's tools and its configuration, in lower case -> the option that is suggested."""

REFUSED = {
    "kafka.auto.offset.reset": (
        "Kafka option 'auto.offset.reset' is not supported. Instead set the source option 'startingoffsets' to "
        "'earliest' or 'latest' to specify where to start. Structured Streaming manages which offsets are consumed "
        "internally, rather than relying on the kafkaConsumer to do it. This will ensure that no data is missed when "
        "new topics/partitions are dynamically subscribed. Note that 'startingoffsets' only applies when a new "
        "Streaming query is started, and that resuming will always pick up from where the query left off. See the "
        "docs for more details."
    ),
    "kafka.key.deserializer": (
        "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays with "
        "ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the keys."
    ),
    "kafka.value.deserializer": (
        "Kafka option 'value.deserializer' is not supported as values are deserialized as byte arrays with "
        "ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the values."
    ),
    "kafka.enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "kafka.interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
}
"""Options that Spark's Kafka connector refuses as well -> its message.

A job that sets such an option expects behaviour that neither source has.
"""
