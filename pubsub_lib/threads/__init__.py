"""Start of threads, and a periodic thread. Does not depend on drivers, publishers or replicas."""
