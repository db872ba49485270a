"""Contents of kafkalog-report: facts about log directories, charts of them, and the HTML page."""
