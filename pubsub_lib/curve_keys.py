"""CURVE's keys as text, and the key file of a client, in the format of ZeroMQ's certificates.

Imports ZeroMQ only to make a pair of keys, so that a store without ZeroMQ can hold public keys.
"""

import os
import re
import stat
from pathlib import Path
from typing import Final, NamedTuple

from pubsub_lib.errors import ConfigError, InvalidValueError
from pubsub_lib.logs import logger

_log = logger(__name__)

_KEY: Final = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
"""32 bytes in ZeroMQ's notation Z85."""
_LINE: Final = re.compile(r'^\s*(public|secret)-key\s*=\s*"([^"]*)"\s*$', re.MULTILINE)
_MAX_BYTES: Final = 64 * 1024
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class KeyPair(NamedTuple):
    """A public key and its secret key, 40 characters each."""

    public: str
    secret: str

    def __repr__(self) -> str:
        """Without the secret: logs and tracebacks show it."""
        return f"KeyPair({self.public!r}, ***)"


def check_key(key: str) -> str:
    """Return the key. Raises InvalidValueError for text that is not a CURVE key."""
    if not _KEY.fullmatch(key):
        raise InvalidValueError(f"the key {key[:50]!r} is not a CURVE key: it must be 40 characters in ZeroMQ's Z85")
    return key


def new_pair() -> KeyPair:
    """A new pair of keys. The public key does not begin with ``-``, so that a command line does not take it for an
    option. Raises ConfigError when ZeroMQ is missing or cannot use CURVE.
    """
    try:
        import zmq
    except ImportError as error:
        raise ConfigError(f"keys need ZeroMQ ({error}); run: pip install pubsub-lib[zmq]") from error
    check_zeromq(zmq.zmq_version_info(), zmq.has("curve"))
    while True:
        public, secret = zmq.curve_keypair()
        if not public.startswith(b"-"):
            return KeyPair(public.decode(), secret.decode())


def check_zeromq(version: tuple[int, ...], curve: bool) -> None:
    """Refuse (ConfigError) a libzmq that is older than 4.3.5, or was built without CURVE."""
    shown = ".".join(map(str, version))
    if version < (4, 3, 5):
        raise ConfigError(
            f"keys need libzmq 4.3.5 or newer, and pyzmq uses {shown}; install pyzmq's wheel: pip install -U pyzmq"
        )
    if not curve:
        raise ConfigError(
            f"libzmq {shown} was built without CURVE, which keys need; install pyzmq's wheel: pip install -U pyzmq"
        )


def file_text(name: str, pair: KeyPair) -> str:
    """The content of a client's key file."""
    return (
        f"# Key of the pubsub_lib client {name!r}. Keep it secret.\n"
        f'curve\n    public-key = "{pair.public}"\n    secret-key = "{pair.secret}"\n'
    )


def read_file(path: str) -> KeyPair:
    """The pair in a client's key file. A file that other users can read is only logged, because secrets that a
    container's host mounts often have such modes. Raises ConfigError.
    """
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MAX_BYTES).decode()
    except OSError as error:
        raise ConfigError(f"cannot read client_key_file {path!r}: {error.strerror}; correct it in [pubsub]") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"client_key_file {path!r} is not a key file; make one: pubsub-db clients add") from error
    found = {kind: key for kind, key in _LINE.findall(content) if _KEY.fullmatch(key)}
    if found.keys() != {"public", "secret"}:
        raise ConfigError(
            f"client_key_file {path!r} holds no public-key and secret-key; make one: pubsub-db clients add"
        )
    if mode & _OTHERS:
        _log.warning("other users can read the secret key in %s; run: chmod 600 %s", path, path)
    return KeyPair(found["public"], found["secret"])
