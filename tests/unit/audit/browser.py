"""A headless Chromium for pages that need no network, driven by chromedriver."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from pubsub_lib.errors import ConfigError

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
)  # fmt: skip


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """The browser with an empty profile. Raises ConfigError when it is not installed: nothing is downloaded."""
    found = {program: shutil.which(program) for program in ("chromium", "chromedriver")}
    for program, path in found.items():
        if path is None:
            raise ConfigError(f"no {program} found; install the packages chromium and chromium-driver")
    options = Options()
    options.binary_location = str(found["chromium"])
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    os.environ["SE_OFFLINE"] = "true"
    running = webdriver.Chrome(options=options, service=Service(executable_path=str(found["chromedriver"])))
    try:
        yield running
    finally:
        running.quit()
