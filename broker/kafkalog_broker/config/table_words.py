"""The words that the tables of properties are written with."""

from __future__ import annotations

from kafkalog_broker.config.definition import PropertyType, Update

BOOLEAN = PropertyType.BOOLEAN
STRING = PropertyType.STRING
INT = PropertyType.INT
SHORT = PropertyType.SHORT
LONG = PropertyType.LONG
DOUBLE = PropertyType.DOUBLE
LIST = PropertyType.LIST
CLASS = PropertyType.CLASS
PASSWORD = PropertyType.PASSWORD

# how important a property is, as Kafka's documentation says it
HIGH = "high"
MEDIUM = "medium"
LOW = "low"

PER_BROKER = Update.PER_BROKER
CLUSTER = Update.CLUSTER_WIDE
