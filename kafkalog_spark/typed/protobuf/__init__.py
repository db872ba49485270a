"""Protobuf's wire format: descriptors, the plan of a message, and the kernel that decodes by it."""
