"""Metadata tables: everything in log directories besides the records, as Arrow."""
