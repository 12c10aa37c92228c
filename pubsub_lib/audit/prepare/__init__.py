"""``pubsub-audit prepare``: makes the archive of Spark's classes by an audit of generated journals."""
