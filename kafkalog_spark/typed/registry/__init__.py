"""Schema registries: how a value says its schema's id, where schemas with ids come from, and what they were
registered as."""
