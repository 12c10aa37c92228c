"""Reads journals and the store into one table of records."""
