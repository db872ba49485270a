"""Tiered storage (KIP-405): closed segments go to remote storage, and are served and deleted there."""
