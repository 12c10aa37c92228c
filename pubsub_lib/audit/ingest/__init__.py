"""From journals, and from the store, to one table of records."""
