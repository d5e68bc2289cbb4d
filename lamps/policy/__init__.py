"""Allocation policies: which trial advances next, and when to stop.

One file per policy; `make` builds one by name. The learned policy joins this table as ``lamps``
and becomes the default.
"""

from __future__ import annotations

import importlib
from typing import Any

from lamps.errors import ConfigError, UnknownMethod, did_you_mean
from lamps.plugins import hooks
from lamps.policy.base import STOP, WAIT, Action, Observation, Policy

__all__ = ["DEFAULT", "STOP", "WAIT", "Action", "Observation", "Policy", "load", "make", "names"]

DEFAULT = "front-racing"

_SHIPPED = {
    "exhaustive": "exhaustive:Exhaustive",
    "random": "random_order:RandomOrder",
    "smallest-first": "smallest_first:SmallestFirst",
    "round-robin": "round_robin:RoundRobin",
    "front-racing": "front_racing:FrontRacing",
    "mo-successive-halving": "mo_successive_halving:MoSuccessiveHalving",
}


def _from_hooks() -> dict[str, type[Policy]]:
    found: dict[str, type[Policy]] = {}
    for more in hooks().hook.lamps_register_policies():
        found.update({name: cls for name, cls in more.items() if name not in _SHIPPED})
    return found


def names() -> list[str]:
    """Names of all policies, shipped ones first."""
    return [*_SHIPPED, *sorted(_from_hooks())]


def load(name: str) -> type[Policy]:
    """The class of a policy.

    Raises:
        UnknownMethod: There is none of that name.
    """
    if name in _SHIPPED:
        module, cls = _SHIPPED[name].split(":")
        found: type[Policy] = getattr(importlib.import_module(f"lamps.policy.{module}"), cls)
        return found
    others = _from_hooks()
    if name in others:
        return others[name]
    raise UnknownMethod(f"no policy {name!r}. {did_you_mean(name, [*_SHIPPED, *others])}")


def make(text: str, *, seed: int = 0) -> Policy:
    """A policy by name, with options in brackets: ``front-racing`` or ``front-racing(depth=2)``.

    Example:
        >>> make("front-racing(depth=2)").depth
        2
    """
    name, _, rest = text.partition("(")
    cls = load(name.strip())
    if rest and not rest.endswith(")"):
        raise ConfigError(f"policy {text!r} lacks its closing bracket")
    options: dict[str, Any] = {}
    for item in filter(None, rest.removesuffix(")").split(",")):
        key, equals, value = item.partition("=")
        try:
            options[key.strip()] = float(value) if "." in value else int(value)
        except ValueError as error:
            raise ConfigError(
                f"policy option {item.strip()!r} is not of the form name=number"
            ) from error
        if not equals:
            raise ConfigError(f"policy option {item.strip()!r} is not of the form name=number")
    try:
        return cls(seed=seed, **options)
    except TypeError as error:
        raise ConfigError(f"policy {name!r}: {error}") from error
