"""The publisher service of a host: receives the links that workers commit, and sends them to the replicas."""
