"""Sends what a program commits: by itself, or through the publisher service of its host."""
