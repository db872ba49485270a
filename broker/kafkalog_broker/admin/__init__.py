"""Requests of admin clients: topics, partitions, configuration. Stands on storage and config."""
