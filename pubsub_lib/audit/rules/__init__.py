"""The definitions of docs/contributing/audit-verdicts.md as Spark tables: verdicts on messages and objects."""
