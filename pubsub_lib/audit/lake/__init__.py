"""The lake: a folder with the small tables of all audits, by day (docs/audit.md, "Days")."""
