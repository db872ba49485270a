"""Consumer groups of the newer protocol (KIP-848): the coordinator assigns, and members follow by heartbeats."""
