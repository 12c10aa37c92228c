"""Access to Spark: its session, its Java, its paths, small tables of the driver process."""
