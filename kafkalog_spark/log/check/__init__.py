"""kafkalog-check: a scan of log directories that changes nothing and reports all that no broker leaves there."""
