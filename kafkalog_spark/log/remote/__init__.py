"""A log whose segments lie in remote storage, or partly there."""
