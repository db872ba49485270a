"""kafkalog-report: facts of log directories, their charts, the page."""
