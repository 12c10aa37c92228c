"""The commands of ``tools/bench`` that measure one thing each. Each module has ``options`` and ``measure``."""
