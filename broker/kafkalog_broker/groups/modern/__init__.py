"""What consumer groups (KIP-848) and share groups (KIP-932) have in common, as in Kafka's group.modern package."""
