"""What publishers, replicas and services are given: settings that are some, and a store that agrees with them."""

from pubsub_lib.arguments import check_methods, wrong
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import ConfigError
from pubsub_lib.settings import Settings


def check_settings(settings: object) -> None:
    """Raises ConfigError for what is no :class:`~pubsub_lib.Settings`: a path or a URL, most of the time."""
    if not isinstance(settings, Settings):
        raise wrong(
            "settings", settings, "pubsub_lib.Settings (Settings.from_file(path) reads an INI file)", ConfigError
        )


def check_store(store: object, *methods: str) -> None:
    """Raises UsageError for what lacks one of the methods that are used of a store."""
    check_methods("store", store, methods, "a pubsub_lib.Store (Store(settings) opens one)")


def check_limits(settings: Settings, store: object) -> None:
    """Raises ConfigError, which names both values, for a store whose limits are not the settings'.

    A store without limits of its own (a test's double) passes.
    """
    limits = getattr(store, "limits", settings.limits)
    for name in Limits.__struct_fields__:
        has, wants = getattr(limits, name), getattr(settings.limits, name)
        if has != wants:
            raise ConfigError(
                f"the store has {name} = {has} but the settings say {wants}; open the store by Store(settings)"
            )
