"""What a reader gets of the verdicts: tables, a summary, text, a page, metrics."""
