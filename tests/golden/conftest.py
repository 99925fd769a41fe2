"""The build cache of the tests of the command line."""

from tests.e2e.conftest import cache

__all__ = ["cache"]
