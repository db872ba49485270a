"""Options of other connectors and of Kafka's tools: accepted without effect, refused, or what they are called here."""

from __future__ import annotations

CONNECTOR_ONLY = (
    "kafka.bootstrap.servers",
    "kafka.group.id",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafka.*",
)
"""Accepted and ignored: there is no broker, and nothing is fetched. With `commitGroup` the connection's count."""

OF_SPARK = ("maxFilesPerTrigger",)  # the same, of Spark's other sources

OTHER_NAMES = {
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
"""Names from other connectors, from Kafka's tools and its configuration, and the option here."""

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
"""Refused with the connector's words: a job that sets them expects something that neither source does."""
