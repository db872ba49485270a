"""Tiered storage (KIP-405): closed segments are copied to remote storage, read from it and deleted there."""
