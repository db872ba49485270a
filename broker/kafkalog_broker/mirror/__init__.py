"""A mirror of another cluster's topics: fetched as a consumer fetches, appended as a follower appends."""
