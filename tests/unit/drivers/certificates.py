"""Certificates of a test, each its own authority, and a server that shows one."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    """The files of a certificate and of its key."""

    cert: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """For a server that shows it."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(*self)
        return made


def certificate(folder: Path, name: str, holder: str = "IP:127.0.0.1") -> Certificate:
    """A new one of this holder, signed by itself."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={holder}"]
    files = ["-keyout", str(made.key), "-out", str(made.cert)]
    subprocess.run([*new, *names, *files], check=True, capture_output=True)
    return made


@contextmanager
def handshakes(shown: Certificate) -> Iterator[int]:
    """A server that negotiates TLS with this certificate, and does nothing more; its port."""
    context = shown.context()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with suppress(OSError):  # the listening socket was shut down
                while True:
                    accepted = listening.accept()[0]
                    with accepted, suppress(OSError):  # the client refuses the certificate
                        context.wrap_socket(accepted, server_side=True).close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)
