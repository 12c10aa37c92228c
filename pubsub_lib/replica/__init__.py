"""Follows topics: receives and syncs, applies, calls handlers. Threads around the sans-I/O core."""
