"""Every file of a log as a table: what lies in log directories besides the records, as Arrow."""
