"""The reports of tests/data/ncu, read once for all tests of this folder."""

import functools

import pytest


@pytest.fixture(scope="session")
def profiled(ncu_report, elsewhere):
    """Return a function that returns the profile of a report, by the report's name."""
    from perfsvc.profile.reports import read

    return functools.cache(lambda name: elsewhere(read, ncu_report(name)))
