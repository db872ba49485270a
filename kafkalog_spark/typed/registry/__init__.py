"""Schema registries: the formats with registered schemas, and where the schemas come from."""
