"""Support of kafkalog_broker.testing: control of the broker process, faults, clock, users and certificates."""
