from __future__ import annotations

from collections.abc import Callable

import pytest
from lamps_plugins._views.problem import ClusterProblem
from lamps_plugins.multi_view_clustering._problem import FAMILY


@pytest.fixture
def toy() -> Callable[..., ClusterProblem]:
    """Opens the toy with options."""
    return lambda **options: FAMILY.open_problem("toy", options)
