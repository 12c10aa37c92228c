"""``redis_pubsub_driver``: publishers and subscribers over pub/sub channels of Redis. Needs no client library."""
