"""Promises written as code, shipped with the wheel, for authors of plugins.

Three doors to the same checks: `check_method`, the pytest decorator `parametrize_with_checks`, and
``lamps method check NAME``.
"""

from __future__ import annotations

from lamps.testing.runner import (
    Result,
    check_family,
    check_method,
    checks_for,
    parametrize_with_checks,
)

__all__ = ["Result", "check_family", "check_method", "checks_for", "parametrize_with_checks"]
