"""The replica: receives and syncs changes, applies them, calls handlers. Threads around the core, which has no I/O."""
