"""APIs about the cluster, its node, log directories, replicas and features."""
