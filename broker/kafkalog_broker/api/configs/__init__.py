"""APIs about configuration of resources, and client quotas."""
