"""The checks of a service's role; test_settings.py reads the same settings from files."""

import msgspec
import pytest

from pubsub_lib import Settings
from pubsub_lib.config.pubsub import POLLING_DRIVER
from pubsub_lib.config.service import ServiceSettings
from pubsub_lib.errors import ConfigError
from pubsub_lib.service import roles
from pubsub_lib.service.roles import listening

OWN = Settings(store_url="sqlite:///net.db", service_name="api-1", driver="zmq_pubsub_driver")


def test_relay_listens_to_publishers_ips_only_without_parents_and_directory() -> None:
    addresses, parents = ("tcp://10.0.0.1:8866",), ("tcp://10.0.0.7:8866",)
    given = Settings(sync_url="http://10.0.0.1:8867", addresses=addresses)
    assert listening(given).addresses == addresses
    assert listening(msgspec.structs.replace(given, parents=parents)).addresses == ()
    assert listening(msgspec.structs.replace(given, store_url="sqlite:///net.db")).addresses == ()


def test_each_role_has_its_own_checks() -> None:
    roles.check(OWN, ServiceSettings())
    with pytest.raises(ConfigError, match=r"role = relay .* needs named topics"):
        roles.check(OWN, ServiceSettings(role="relay"))
    with pytest.raises(ConfigError, match=r"role = standby .* does nothing but answer syncs"):
        roles.check(OWN, ServiceSettings(role="standby"))
    for role in ("origin", "standby"):
        siblings = ServiceSettings(role=role, sibling_urls="http://10.0.0.2:8867", serve_syncs=True)
        with pytest.raises(ConfigError, match=r"sibling_urls .* is of a relay"):
            roles.check(OWN, siblings)


def test_silent_settings_bind_nothing() -> None:
    silent = roles.silent(OWN)
    assert (silent.driver, silent.bind_address, silent.keys) == (POLLING_DRIVER, "", False)
    assert (silent.store_url, silent.service_name) == (OWN.store_url, OWN.service_name)
