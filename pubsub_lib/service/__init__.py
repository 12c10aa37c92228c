"""The publisher service of a host: takes what workers commit, and sends it to the replicas."""
