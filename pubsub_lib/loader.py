"""Find a driver by its name, and refuse one that lacks a capability that the configuration needs (rule D1)."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from stevedore import DriverManager
from stevedore.exception import MultipleMatches, NoMatches

from pubsub_lib import contract, exposure
from pubsub_lib.api import Capabilities, Driver, Publisher
from pubsub_lib.config import installed_drivers
from pubsub_lib.errors import DriverError
from pubsub_lib.settings import Settings

GROUP: Final = installed_drivers.DRIVERS
"""The entry-point group in which a driver registers its class."""

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def load(name: str, needs: Mapping[str, str] = _NOTHING) -> type[Driver]:
    """The class of the installed driver of this name. Any thread; blocks while it imports the driver.

    ``needs``: for each field of :class:`~pubsub_lib.api.Capabilities` that must be true, the thing that needs it, in
    words that fit after "needed by".

    Raises DriverError when the driver is unknown (the known ones are listed), when an extra is missing (the command
    that installs it is given), when the driver cannot be imported, or when it lacks a capability (both are named).
    """
    driver = _import(name)
    require(name, driver.capabilities, needs)
    return driver


def load_publisher(settings: Settings, needs: Mapping[str, str] = _NOTHING) -> Publisher:
    """A new publisher of ``settings.driver``, which needs the settings' capabilities and these.

    Raises as :func:`load`, and ConfigError for options that the driver cannot use, and for an address to bind that
    others can reach without keys. With ``insecure`` such an address is only logged, as a warning.
    """
    driver = load(settings.driver, {**settings.needs(), **needs})
    if driver.capabilities.bind_based and not settings.keys:
        exposure.warn({exposure.PUBLISHER: settings.bind_address}, settings.insecure)
    return contract.publisher(driver, settings.for_driver())


def load_hop(name: str) -> type[Driver]:
    """As :func:`load`, for the driver between a host's workers and its publisher service. Raises DriverError also for
    a driver whose senders bind, because many workers cannot bind one address, and for one that sends no messages.
    """
    driver = load(name)
    if driver.capabilities.bind_based or not driver.capabilities.carries_envelopes:
        why = "its senders bind the address" if driver.capabilities.bind_based else "it sends no messages"
        raise DriverError(
            f"the driver {name!r} cannot be used as pub_sub_multiproc_driver, because {why}; "
            "set pub_sub_multiproc_driver = zmq_pubsub_multiproc_driver in [pubsub]"
        )
    return driver


def require(name: str, capabilities: Capabilities, needs: Mapping[str, str]) -> None:
    """Raise DriverError for the first capability in ``needs`` that is not declared."""
    for capability, asker in needs.items():
        if capability not in Capabilities.__struct_fields__:
            raise DriverError(
                f"the capability {capability!r} is unknown; name one of {', '.join(Capabilities.__struct_fields__)}"
            )
        if not getattr(capabilities, capability):
            able = ", ".join(_able(capability)) or "none of the installed ones"
            raise DriverError(
                f"the driver {name!r} lacks the capability {capability!r}, needed by {asker}; drivers that have it: "
                f"{able}"
            )


def driver_table(names: Iterable[str] | None = None) -> str:
    """Markdown table of the drivers (default: all installed ones) and their capabilities, for the docs.

    A driver whose extra is missing is listed without its capabilities. Raises DriverError for an unknown name.
    """
    fields = Capabilities.__struct_fields__
    lines = [
        f"| driver | {' | '.join(field.replace('_', ' ') for field in fields)} |",
        f"|---|{'---|' * len(fields)}",
    ]
    known = installed_drivers.packages()
    for name in sorted(known if names is None else names):
        try:
            declared = _import(name).capabilities
            cells = ["yes" if getattr(declared, field) else "no" for field in fields]
        except DriverError:
            if name not in known:
                raise
            cells = ["not installed"] * len(fields)
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _able(capability: str) -> list[str]:
    able = []
    for name in sorted(installed_drivers.packages()):
        try:
            if getattr(_import(name).capabilities, capability):
                able.append(name)
        except DriverError:
            pass  # a driver that cannot be imported is of no help
    return able


def _import(name: str) -> type[Driver]:
    """The driver's class. Not by ``invoke_on_load``: for a falsy instance stevedore then returns the class."""
    failures: list[BaseException] = []
    try:
        found: object = DriverManager(
            GROUP,
            name,
            invoke_on_load=False,
            on_load_failure_callback=lambda _manager, _entry, error: failures.append(error),
        ).driver
    except MultipleMatches as error:
        raise DriverError(f"several installed packages have a driver {name!r}; uninstall all but one") from error
    except NoMatches as error:
        if failures:
            raise _unusable(name, failures[0]) from failures[0]
        raise DriverError(installed_drivers.no_driver(name)) from error
    if not (isinstance(found, type) and issubclass(found, Driver)):
        raise DriverError(
            f"the entry point {name!r} in {GROUP} is {found!r}, not a class derived from pubsub_lib.api.Driver; "
            "correct the package that registers it"
        )
    return found


def _unusable(name: str, error: BaseException) -> DriverError:
    package = installed_drivers.packages().get(name, "")
    extra = installed_drivers.extra_of(package) if package else ""
    reason = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, ImportError) and extra:
        return DriverError(f"the driver {name!r} lacks a dependency ({reason}); run: pip install pubsub-lib[{extra}]")
    return DriverError(
        f"the driver {name!r} cannot be imported ({type(error).__name__}: {reason}); correct or reinstall {package!r}"
    )
