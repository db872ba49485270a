"""What kafkalog-report shows: facts of log directories, charts of them, the page."""
