"""The definitions of docs/audit.md as Spark tables: a verdict on every message and every object."""
