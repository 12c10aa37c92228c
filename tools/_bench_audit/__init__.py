"""The parts of ``tools/bench audit``."""
