"""Changes that admin clients request: topics, partitions, configuration, quotas, features, share group state."""
