"""Writes the plans of `plans.py` before the first test."""

from __future__ import annotations

import pytest
from plans import write_plans


@pytest.fixture(scope="session", autouse=True)
def plans() -> None:
    write_plans()
