"""Mirror of another cluster's topics: fetches like a consumer, appends like a follower."""
