"""Metrics that clients push to the broker (KIP-714): who is to push which, and who may push now."""
