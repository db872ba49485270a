"""Broker properties of the node and the network: identity, listeners, connections, sizes of requests."""

from __future__ import annotations

from broker.config.definition import AddressLimits, Between, OneOf, Property, PropertyType, Update

STRING = PropertyType.STRING
INT = PropertyType.INT
LONG = PropertyType.LONG
LIST = PropertyType.LIST
HIGH = "high"
MEDIUM = "medium"
LOW = "low"
CLUSTER = Update.CLUSTER_WIDE
PER_BROKER = Update.PER_BROKER

# fmt: off
NETWORK_PROPERTIES = (
    Property("node.id", INT, None, Between(0), HIGH, "This node's number in the cluster."),
    Property("broker.id", INT, "-1", None, HIGH, "The older name of node.id."),
    Property("broker.rack", STRING, None, None, MEDIUM,
             "The rack this node stands in; clients may read it in metadata."),
    Property("process.roles", LIST, None, OneOf(("broker", "controller")), HIGH,
             "What this process is in a KRaft cluster; this broker is always both broker and controller."),
    Property("listeners", LIST, "PLAINTEXT://:9092", None, HIGH,
             "Where the broker listens: NAME://HOST:PORT, by commas. No host: all interfaces. Port 0: a free one.",
             PER_BROKER),
    Property("advertised.listeners", LIST, None, None, HIGH, "What clients are told to connect to; unset: listeners."),
    Property("listener.security.protocol.map",
             STRING,
             "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
             None,
             LOW,
             "Which security protocol each listener name stands for.",
             PER_BROKER),
    Property("controller.listener.names", LIST, None, None, HIGH,
             "Listeners of the controller; this broker opens none of them."),
    Property("inter.broker.listener.name", STRING, None, None, MEDIUM,
             "The listener that brokers use among themselves."),
    Property("security.inter.broker.protocol", STRING, "PLAINTEXT",
             OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")), MEDIUM,
             "The security protocol that brokers use among themselves."),
    Property("early.start.listeners", LIST, None, None, HIGH,
             "Listeners that open before the broker has loaded its state."),
    Property("num.network.threads", INT, "3", Between(1), HIGH,
             "Threads that read requests and write responses.", CLUSTER),
    Property("num.io.threads", INT, "8", Between(1), HIGH, "Threads that process requests.", CLUSTER),
    Property("background.threads", INT, "10", Between(1), HIGH, "Threads for work in the background.", CLUSTER),
    Property("queued.max.requests", INT, "500", Between(1), HIGH,
             "Requests that may wait before the network threads stop reading."),
    Property("queued.max.request.bytes", LONG, "-1", None, MEDIUM,
             "Bytes of waiting requests before nothing more is read; -1: no limit."),
    Property("request.timeout.ms", INT, "30000", None, HIGH,
             "How long the broker waits for answers to its own requests."),
    Property("socket.request.max.bytes", INT, "104857600", Between(1), HIGH, "Largest request in bytes."),
    Property("socket.send.buffer.bytes", INT, "102400", None, HIGH,
             "SO_SNDBUF of connections; -1: the system's default."),
    Property("socket.receive.buffer.bytes", INT, "102400", None, HIGH,
             "SO_RCVBUF of connections; -1: the system's default."),
    Property("socket.listen.backlog.size", INT, "50", Between(1), MEDIUM, "Connections that may wait to be accepted."),
    Property("socket.connection.setup.timeout.ms", LONG, "10000", None, MEDIUM,
             "How long the broker waits for a connection it opens itself."),
    Property("socket.connection.setup.timeout.max.ms", LONG, "30000", None, MEDIUM,
             "Upper bound of that wait after repeated failures."),
    Property("connections.max.idle.ms", LONG, "600000", None, MEDIUM,
             "A connection without a request for this long is closed."),
    Property("max.connections", INT, "2147483647", Between(0), MEDIUM,
             "Connections the broker holds at a time.", CLUSTER),
    Property("max.connections.per.ip", INT, "2147483647", Between(0), MEDIUM,
             "Connections from one address.", CLUSTER),
    Property("max.connections.per.ip.overrides", STRING, "", AddressLimits(), MEDIUM,
             "Other limits for single addresses: address:limit, separated by commas.", CLUSTER),
    Property("max.connection.creation.rate", INT, "2147483647", Between(0), MEDIUM,
             "Connections accepted per second.", CLUSTER),
    Property("connection.failed.authentication.delay.ms", INT, "100", Between(0), LOW,
             "How long the answer to a failed authentication is held back."),
    Property("connections.max.reauth.ms", LONG, "0", None, MEDIUM, "How long a SASL session may last."),
    Property("fetch.max.bytes", INT, "57671680", Between(1024), MEDIUM,
             "Most bytes in the answer to one Fetch request."),
    Property("max.incremental.fetch.session.cache.slots", INT, "1000", Between(0), MEDIUM,
             "How many fetch sessions are kept."),
    Property("max.request.partition.size.limit", INT, "2000", Between(1), MEDIUM,
             "Most partitions in the answer to one DescribeTopicPartitions request."),
)
# fmt: on
