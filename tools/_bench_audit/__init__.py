"""The parts of ``tools/bench_audit``."""
