"""Every file of a log as a table: what lies in log directories beside the records, as Arrow."""
