"""What admin clients ask for and change: topics, partitions, configuration. Stands on storage and config."""
