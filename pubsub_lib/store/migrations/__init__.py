"""Alembic's scripts: how a database comes from one revision to the next."""
