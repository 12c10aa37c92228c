"""Send a program's commits, either directly or through the publisher service of its host."""
