"""Check the settings and the store that are passed to publishers, replicas and services."""

from pubsub_lib.arguments import check_methods, wrong
from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import ConfigError
from pubsub_lib.settings import Settings


def check_settings(settings: object) -> None:
    """Raises ConfigError for a value that is not a :class:`~pubsub_lib.Settings` (usually a path or a URL)."""
    if not isinstance(settings, Settings):
        raise wrong(
            "settings", settings, "pubsub_lib.Settings (Settings.from_file(path) reads an INI file)", ConfigError
        )


def check_store(store: object, *methods: str) -> None:
    """Raises UsageError for an object that lacks one of these methods of a store."""
    check_methods("store", store, methods, "a pubsub_lib.Store (Store(settings) opens one)")


def check_limits(settings: Settings, store: object) -> None:
    """Raises ConfigError, which names both values, for a store whose limits differ from the settings' limits.

    A store without limits (a test double) passes.
    """
    limits = getattr(store, "limits", settings.limits)
    for name in Limits.__struct_fields__:
        has, wants = getattr(limits, name), getattr(settings.limits, name)
        if has != wants:
            raise ConfigError(
                f"the store has {name} = {has} but the settings have {wants}; open the store by Store(settings)"
            )
