"""What a store and the settings of its publisher must agree on."""

from pubsub_lib.core.limits import Limits
from pubsub_lib.errors import ConfigError
from pubsub_lib.settings import Settings


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
