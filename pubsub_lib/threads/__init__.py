"""How a thread is started, and one that repeats a step. Knows nothing of drivers, publishers and replicas."""
