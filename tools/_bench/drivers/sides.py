"""All drivers of the case."""

from collections.abc import Sequence

from _bench.drivers.nats_side import NatsSide
from _bench.drivers.redis_side import RedisSide
from _bench.drivers.side import Side

SIDES: Sequence[Side] = (RedisSide(), NatsSide())
