"""Client quotas: limits of users, clients and addresses, and the throttling of requests that exceed them."""
