"""``tools/bench --case e2e``: from the writer's transaction to a watcher's handler, beside other systems."""
