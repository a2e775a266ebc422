from __future__ import annotations

from tests.library.conftest import run as run  # a fixture
