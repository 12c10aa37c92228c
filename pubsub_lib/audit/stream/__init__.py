"""``pubsub-audit follow``: audits journals while they still grow."""
