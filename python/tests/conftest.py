"""Writes the plans of `plans.py` once, where a test asks for them."""

from __future__ import annotations

import pytest
from plans import write_plans


@pytest.fixture(scope="session")
def plans() -> None:
    write_plans()
