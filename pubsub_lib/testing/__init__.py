"""Helpers for tests of this library, of its drivers, and of programs that use it.

Nothing else in the library imports them.
"""
