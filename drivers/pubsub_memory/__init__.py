"""The ``memory`` driver: publishers and subscribers of one process, with an adjustable lossy link between them."""

from pubsub_memory.bus import MemoryBus, bus
from pubsub_memory.driver import MemoryDriver

__all__ = ["MemoryBus", "MemoryDriver", "bus"]
