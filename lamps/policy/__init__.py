"""Allocation policies: which trial advances next, and when to stop.

One file per policy; `make` builds one by name. The default is ``lamps``, the learned one.
"""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

from lamps.errors import ConfigError, UnknownMethod, did_you_mean
from lamps.plugins import hooks
from lamps.policy.base import STOP, WAIT, Action, Hindsight, Observation, Policy, Pool

__all__ = [
    "DEFAULT",
    "STOP",
    "WAIT",
    "Action",
    "Hindsight",
    "Observation",
    "Policy",
    "Pool",
    "load",
    "make",
    "names",
]

DEFAULT = "lamps"

_SHIPPED = {
    "lamps": "learned:Lamps",
    "exhaustive": "exhaustive:Exhaustive",
    "random": "random_order:RandomOrder",
    "smallest-first": "smallest_first:SmallestFirst",
    "round-robin": "round_robin:RoundRobin",
    "front-racing": "front_racing:FrontRacing",
    "mo-successive-halving": "mo_successive_halving:MoSuccessiveHalving",
    "mo-asha": "mo_asha:MoAsha",
    "hyperband": "hyperband:Hyperband",
    "extrapolate": "extrapolate:Extrapolate",
    "ehvi": "ehvi:Ehvi",
    "optuna:tpe": "optuna_sampler:OptunaTpe",
    "optuna:nsga2": "optuna_sampler:OptunaNsga2",
    "optuna:qmc": "optuna_sampler:OptunaQmc",
    "optuna:random": "optuna_sampler:OptunaRandom",
    "oracle": "oracle:Oracle",
}


# Minutes at a thousand trials, so not among those that are tried by default.
_UNLISTED = {"optuna:gp": "optuna_sampler:OptunaGp"}

_OPTION = re.compile(r"(?P<name>\w+)\s*=\s*(?P<value>[^\s,()=]+)")


def _option_value(text: str) -> int | float | str:
    """A number where the text is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _from_hooks() -> dict[str, type[Policy]]:
    ours = _SHIPPED | _UNLISTED
    found: dict[str, type[Policy]] = {}
    for more in hooks().hook.lamps_register_policies():
        found.update({name: cls for name, cls in more.items() if name not in ours})
    return found


def names() -> list[str]:
    """Names of all policies, shipped ones first, but for those that are slow to decide."""
    return [*_SHIPPED, *sorted(_from_hooks())]


def load(name: str) -> type[Policy]:
    """The class of a policy.

    Raises:
        UnknownMethod: There is none of that name.
    """
    ours = _SHIPPED | _UNLISTED
    if name in ours:
        module, cls = ours[name].split(":")
        found: type[Policy] = getattr(importlib.import_module(f"lamps.policy.{module}"), cls)
        return found
    others = _from_hooks()
    if name in others:
        return others[name]
    raise UnknownMethod(f"no policy {name!r}. {did_you_mean(name, [*ours, *others])}")


def make(text: str, *, seed: int = 0) -> Policy:
    """A policy by name, with options in brackets: ``front-racing`` or ``front-racing(depth=2)``.

    Options are numbers or words: ``extrapolate(first=3, kind=rectified)``.

    Raises:
        UnknownMethod: There is no policy of that name.
        ConfigError: An option is not known, malformed or out of its range.

    Example:
        >>> make("front-racing(depth=2)").depth
        2
    """
    name, bracket, rest = text.partition("(")
    cls = load(name.strip())
    if bracket and not rest.endswith(")"):
        raise ConfigError(f"policy {text!r} lacks its closing bracket")
    known = inspect.signature(cls).parameters
    options: dict[str, Any] = {}
    for item in filter(None, rest.removesuffix(")").split(",")):
        match = _OPTION.fullmatch(item.strip())
        if match is None:
            raise ConfigError(
                f"policy option {item.strip()!r} is not of the form name=number or name=word"
            )
        option, value = match["name"], _option_value(match["value"])
        if option not in known or option == "seed":
            others = [k for k in known if k != "seed"]
            raise ConfigError(
                f"policy {name!r} has no option {option!r}. {did_you_mean(option, others)}"
            )
        expected = "word" if isinstance(known[option].default, str) else "number"
        if isinstance(value, str) != (expected == "word"):
            raise ConfigError(
                f"policy option {item.strip()!r} is not of the form {option}={expected}"
            )
        options[option] = value
    return cls(seed=seed, **options)
