"""Helpers for tests of drivers, and of programs that use this library.

Nothing else in the library imports them.
"""
