"""What ``tools/bench_audit`` is made of."""
