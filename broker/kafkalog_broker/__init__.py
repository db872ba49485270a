"""A Kafka-compatible broker that stores records in Kafka's own log directories.

`net` reads requests and writes responses, `protocol` decodes and encodes them, `api` has the handlers of Kafka's APIs,
and `storage`, `groups`, `transactions` and `share` hold the state. kafkalog_spark does not import this package.
"""
