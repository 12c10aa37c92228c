"""The results of an audit: tables, a summary, text, an HTML page, metrics."""
