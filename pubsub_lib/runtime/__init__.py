"""What runs: threads around the sans-I/O core."""
