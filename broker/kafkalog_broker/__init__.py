"""A broker that Kafka clients can use, writing Kafka's own log directories.

`protocol` turns bytes into requests and answers into bytes, `net` moves the bytes, `storage` and `groups` hold the
state, `api` has one file per Kafka API. Nothing of the reader imports this package.
"""
