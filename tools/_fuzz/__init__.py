"""Mutation fuzzing of all readers of foreign bytes; see docs/contributing/fuzzing.md."""
