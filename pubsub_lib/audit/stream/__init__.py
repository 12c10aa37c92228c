"""``pubsub-audit follow``: verdicts while journals still arrive."""
