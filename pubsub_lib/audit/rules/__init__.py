"""The definitions of docs/audit.md as Spark tables: a verdict for every message and every object."""
