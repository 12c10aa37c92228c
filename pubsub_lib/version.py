"""The version of the distribution, from where setuptools reads it. Every part may import this module."""

from typing import Final

__version__: Final = "0.1.0"
