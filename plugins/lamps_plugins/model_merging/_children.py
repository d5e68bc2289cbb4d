"""Rules inside rules: a wrapper method takes another method of the family by its name."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from numpy.random import Generator

from lamps.errors import ConfigError, did_you_mean
from lamps.method import substream
from lamps.types import Json
from lamps_plugins.model_merging._layers import Group
from lamps_plugins.model_merging._merger import Merger

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.model_merging._problem import MergeProblem

CHILDREN = (
    "task-arithmetic", "average", "ties", "dare", "tsv-m", "iso-c", "iso-cts", "star",
)  # fmt: skip
"""Methods that a wrapper can take: data-free, made of updates alone."""

DOC = "JSON object of the child's params, such as '{\"scale\": 0.5}'; what is left out is default."


def child_of(
    name: str,
    params: str | Mapping[str, Json],
    *,
    known: tuple[str, ...] = CHILDREN,
    **defaults: Json,
) -> Merger[Any]:
    """A method of the family, untouched.

    Args:
        name: One of ``known``.
        params: JSON object of its params, or the text of one.
        known: Names that are allowed.
        defaults: Params that differ from the child's own defaults, unless ``params`` has them.

    Raises:
        ConfigError: No such child, no JSON object, or params that the child does not have.
    """
    if name not in known:
        raise ConfigError(f"no child {name!r}. {did_you_mean(name, known)}")
    given: Any = params
    if isinstance(params, str):
        try:
            given = json.loads(params)
        except json.JSONDecodeError as error:
            raise ConfigError(f"child_params={params!r} is not JSON: {error}") from error
    if not isinstance(given, Mapping):
        raise ConfigError(f"child_params={params!r}, expected a JSON object")
    made: Merger[Any] = class_of(name).from_params({**defaults, **given})
    return made


def class_of(name: str) -> type[Merger[Any]]:
    """The class of a method of the family."""
    module = import_module(f"{__package__}.{name.replace('-', '_')}")
    return next(
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Merger)
        and value.__module__ == module.__name__
    )


def merged_by(child: Merger[Any], problem: MergeProblem, group: Group, rng: Generator) -> Tensor:
    """What a child makes of one group; ``rng`` stays where it is. Shape: [L, m, n]."""
    (_, update), *_ = child.merge_all(problem, [group], copy.deepcopy(rng))
    return update


def draws_of(child: Merger[Any], rng: Generator) -> str:
    """What a child's result depends on besides its params: its random stream, if it has one."""
    return str(substream(rng).integers(2**63)) if child.name() == "dare" else ""
