"""The sync channel: syncs over HTTP, for replicas that cannot reach the database (docs/sync-channel.md)."""
