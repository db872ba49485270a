"""Tiered storage (KIP-405): what its objects and metadata mean, and which segments count. No I/O but for PEM files."""
