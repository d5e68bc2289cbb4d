"""Rules by name, for methods that merge in coordinates of their own: cores, sketches."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from lamps.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from lamps_plugins.model_merging._rules.knots import Rule

RULES = ("average", "ties", "dare", "tsv-m", "iso-c", "svc")
"""Names of the rules; all give the size of one merged update, the average that of the mean."""


def rule_of(
    name: str, *, keep: float = 0.2, drop: float = 0.8, alpha: float = 1.0, seeds: np.ndarray
) -> Rule:
    """A rule on matrices in any coordinates, [K, L, p, q] to [L, p, q].

    Args:
        name: One of `RULES`. ``dare`` drops and averages; ``svc`` calibrates the sum.
        keep: Share of entries that ``ties`` keeps, in each layer.
        drop: Probability that ``dare`` drops an entry.
        alpha: Floor of ``svc``.
        seeds: Seeds of the masks of ``dare``. Shape: [K, L].

    Raises:
        ConfigError: No such rule.
    """
    from lamps_plugins.model_merging._rules.dare import dare
    from lamps_plugins.model_merging._rules.iso import iso_c
    from lamps_plugins.model_merging._rules.linear import average
    from lamps_plugins.model_merging._rules.svc import svc
    from lamps_plugins.model_merging._rules.ties import ties_layer
    from lamps_plugins.model_merging._rules.tsv import tsv_merge

    def dropped(x: Tensor) -> Tensor:
        return average(dare(x, drop, seeds))

    def calibrated(x: Tensor) -> Tensor:
        return svc(x, x.sum(0), alpha=alpha).update

    rules: dict[str, Rule] = {
        "average": average,
        "ties": functools.partial(ties_layer, keep=keep),
        "dare": dropped,
        "tsv-m": tsv_merge,
        "iso-c": iso_c,
        "svc": calibrated,
    }
    if name not in rules:
        raise ConfigError(f"no rule {name!r}. {did_you_mean(name, rules)}")
    return rules[name]
