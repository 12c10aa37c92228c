"""The options of Dragonflow's publish-subscribe spec, and the driver and addresses that follow from them.

Names and defaults are the spec's, and are still read from the group ``[df]`` of a Dragonflow file; only the switch has
lost Dragonflow's name, and ``keys`` and ``insecure`` are ours.
"""

import ipaddress
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from pubsub_lib.config.fields import option
from pubsub_lib.errors import ConfigError
from pubsub_lib.exposure import is_loopback
from pubsub_lib.logs import logger

_log = logger(__name__)

GROUP: Final = "pubsub"
POLLING_DRIVER: Final = "db_polling_pubsub_driver"
"""The driver of a replica while publish-subscribe is off."""
SWITCH: Final = "enable_df_pub_sub"
"""Dragonflow's name of our option ``enable_pub_sub``."""
_IPV6: Final = 6


class PubSubSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of ``[pubsub]`` that name drivers, hosts and ports. ``Settings`` has what they come to."""

    enable_pub_sub: Annotated[
        bool,
        option(
            "Replicas receive changes as messages from publishers. When off, replicas poll the database.",
            old_names=(SWITCH,),
            dragonflow_names=(SWITCH,),
        ),
    ] = False
    pub_sub_driver: Annotated[
        str,
        option(
            "Name of the installed driver that carries messages from publishers to subscribers.",
            dragonflow_names=("pub_sub_driver",),
        ),
    ] = "zmq_pubsub_driver"
    local_ip: Annotated[
        str,
        option(
            "Address of this host. Other options can refer to it as $local_ip.",
            sample="<your address>",
            dragonflow_names=("local_ip",),
        ),
    ] = "127.0.0.1"
    publishers_ips: Annotated[
        tuple[str, ...],
        option("Addresses of the hosts that run a publisher.", dragonflow_names=("publishers_ips",)),
    ] = ("$local_ip",)
    publisher_port: Annotated[
        int,
        Meta(ge=0, le=65535),
        option(
            "TCP port of the publishers. 0: a publisher service or relay binds a free port at each start and enters it "
            "in the directory. Only replicas that read the directory find it there.",
            dragonflow_names=("publisher_port",),
        ),
    ] = 8866
    publisher_transport: Annotated[
        str,
        option(
            "Transport protocol of the publishers: the part of their addresses before '://'.",
            dragonflow_names=("publisher_transport",),
        ),
    ] = "tcp"
    publisher_bind_address: Annotated[
        str,
        option(
            "Address that a publisher binds. '*' means every interface, but only with keys or insecure = true; "
            "otherwise a publisher binds $local_ip instead of '*'. Any address but loopback needs keys or "
            "insecure = true.",
            dragonflow_names=("publisher_bind_address",),
        ),
    ] = "*"
    keys: Annotated[
        bool,
        option(
            "Connections between publishers and replicas are encrypted. A replica accepts only publishers whose key is "
            "in the directory in the database, and publishers accept only clients that pubsub-db clients added, each "
            "for its topics. Set it at all of them. Needs a driver with the capability keys."
        ),
    ] = False
    insecure: Annotated[
        bool,
        option(
            "Allow listeners that others can reach although there are no keys: publishers and HTTP endpoints at any "
            "address but loopback, and ipc sockets in folders where other users may write. Without it they are "
            "refused; with it each start logs a warning. Every host that reaches a publisher can read its messages "
            "and send it hello requests; every host that reaches an HTTP endpoint can read metrics, and a replica's "
            "tables and keys."
        ),
    ] = False
    pub_sub_use_multiproc: Annotated[
        bool,
        option(
            "Worker processes hand their messages over to the publisher service of their host, which sends them "
            "(bind-based drivers only).",
            dragonflow_names=("pub_sub_use_multiproc",),
        ),
    ] = True
    pub_sub_multiproc_driver: Annotated[
        str,
        option(
            "Name of the driver that carries messages from worker processes to the publisher service.",
            dragonflow_names=("pub_sub_multiproc_driver",),
        ),
    ] = "zmq_pubsub_multiproc_driver"
    publisher_multiproc_socket: Annotated[
        str,
        option(
            "Path of the Unix domain socket between worker processes and the publisher service.",
            dragonflow_names=("publisher_multiproc_socket",),
        ),
    ] = "/var/run/zmq_pubsub/zmq-publisher-socket"

    def check(self) -> None:
        """Raises ConfigError for a host that is no valid address, or to which no replica can connect, and for a port 0
        that no replica could find.
        """
        for ip in self.publishers_ips:
            _check_host("publishers_ips", ip, self.publisher_transport)
            if binds_every_interface(ip):
                raise ConfigError(
                    f"the option 'publishers_ips' in group [{GROUP}] holds {ip!r}, to which no replica can connect; "
                    "name the addresses of the hosts that run a publisher, or set local_ip"
                )
        if self.enable_pub_sub:
            _check_host("publisher_bind_address", self.publisher_bind_address, self.publisher_transport)
            self._check_free_port()

    def _check_free_port(self) -> None:
        if self.publisher_port:
            return
        if self.publisher_transport != "tcp":
            raise ConfigError(
                f"publisher_port = 0 in [{GROUP}] asks for a free TCP port, but publisher_transport is "
                f"{self.publisher_transport!r}; set publisher_transport = tcp, or another port"
            )
        if self.publishers_ips != (self.local_ip,):
            raise ConfigError(
                f"publishers_ips in [{GROUP}] names {', '.join(self.publishers_ips)}, but with publisher_port = 0 the "
                "ports are only in the directory; remove publishers_ips, or set publisher_port"
            )

    @property
    def driver(self) -> str:
        """The driver by which a replica receives changes."""
        return self.pub_sub_driver if self.enable_pub_sub else POLLING_DRIVER

    @property
    def multiproc_driver(self) -> str:
        """The driver from workers to the publisher service; "" for none."""
        return self.pub_sub_multiproc_driver if self.enable_pub_sub and self.pub_sub_use_multiproc else ""

    @property
    def multiproc_socket(self) -> str:
        """The socket of :attr:`multiproc_driver`; "" for none."""
        return self.publisher_multiproc_socket if self.multiproc_driver else ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses to which a replica connects: none when the ports are only in the directory."""
        known = self.enable_pub_sub and self.publisher_port
        return tuple(map(self._address, self.publishers_ips)) if known else ()

    @property
    def bind_address(self) -> str:
        """The address that a publisher binds, "" for none. For every interface without ``insecure`` and
        ``keys``: that of ``local_ip`` (loopback if that is not an IP address).
        """
        if not self.enable_pub_sub:
            return ""
        return self._address(self._alone if self._restricted else self.publisher_bind_address)

    def warn_of_restriction(self) -> None:
        """Log that a publisher does not bind every interface, if the options ask for that."""
        if self.enable_pub_sub and self._restricted:
            alone = self._alone
            _log.warning(
                "publisher_bind_address is %r but there are no keys: a driver that binds takes %s; name an address, "
                "or set keys = true, or insecure = true, to bind every interface",
                self.publisher_bind_address,
                "loopback only" if is_loopback(f"{alone}:0") else f"local_ip ({alone}) only",
            )

    def warn_of_unused_driver(self) -> None:
        """Log that replicas poll although a driver is set; to be called if ``pub_sub_driver`` is not a default."""
        if not self.enable_pub_sub and self.pub_sub_driver != POLLING_DRIVER:
            _log.warning(
                "pub_sub_driver is %r but enable_pub_sub is false, so replicas poll the database; "
                "set enable_pub_sub = true in [%s], or remove pub_sub_driver",
                self.pub_sub_driver,
                GROUP,
            )

    @property
    def _restricted(self) -> bool:
        return binds_every_interface(self.publisher_bind_address) and not (self.insecure or self.keys)

    @property
    def _alone(self) -> str:
        return _numeric(self.local_ip) or "127.0.0.1"

    def _address(self, host: str) -> str:
        return f"{self.publisher_transport}://{host}:{self.publisher_port}"


def binds_every_interface(host: str) -> bool:
    """Whether the host of an address is ``*``, or the unspecified IP address in any spelling, such as ``[::0]``."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return host == "*"


def _check_host(option: str, host: str, transport: str) -> None:
    """Refuse (ConfigError) an IP version 6 address without brackets, and a number that is not an IP address."""
    if transport != "tcp":
        return
    try:
        if ipaddress.ip_address(host).version == _IPV6:
            raise ConfigError(
                f"the option {option!r} in group [{GROUP}] is {host!r}, of IP version 6; put it into brackets: [{host}]"
            )
    except ValueError:
        if host.replace(".", "").isdigit():
            raise ConfigError(
                f"the option {option!r} in group [{GROUP}] is {host!r}, not a valid IP address; correct it"
            ) from None


def _numeric(host: str) -> str:
    """The host as it is written before a port when it is an IP address of one interface; "" for a name or wildcard."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return ""
    if address.is_unspecified:
        return ""
    return f"[{address}]" if address.version == _IPV6 else str(address)
