"""The protocol, sans I/O: no socket, no clock, no log, no thread. Only the standard library, msgspec and xxhash."""
