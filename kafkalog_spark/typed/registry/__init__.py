"""Schema registries: how a value says its schema's id, where schemas come from, what they were registered as."""
