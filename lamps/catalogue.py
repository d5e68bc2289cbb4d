"""Problem and pool of a search, from what a user typed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lamps import plugins, space
from lamps.errors import ConfigError, LampsWarning, PluginError, ProblemError, did_you_mean
from lamps.method import Family, Method, ModelInfo, Problem
from lamps.types import Candidate


def open_problem(
    data: str | Path | None, problem: str | None, options: Mapping[str, Any], plugin_path: str
) -> tuple[Family, Problem]:
    """The problem that a user named, and its family.

    Args:
        data: A data file; the family is the one that opens such files.
        problem: ``FAMILY`` or ``FAMILY:REFERENCE``.
        options: The family's options.
        plugin_path: Folders with loose plugins.
    """
    found = plugins.registry(plugin_path)
    if problem is not None:
        name, _, reference = problem.partition(":")
        family = found.load_family(name)
        if data is not None and reference:
            raise ConfigError(f"both a data file ({data}) and --problem {problem} were given")
        family.check_options(options)
        return family, family.open_problem(reference or (str(data) if data else None), options)
    if data is None:
        raise ConfigError(
            "nothing to search: give a data file, or --problem FAMILY:NAME. "
            f"Families: {', '.join(sorted(found.families))}"
        )
    family = _family_for(Path(data), found)
    family.check_options(options)
    return family, family.open_problem(str(data), options)


def _family_for(data: Path, found: plugins.Registry) -> Family:
    families = []
    for name in sorted(found.families):
        try:
            family = found.load_family(name)
        except PluginError as error:
            warnings.warn(f"family {name!r} is left out: {error}", LampsWarning, stacklevel=4)
            continue
        if family.opens(data):
            families.append(family)
    if len(families) == 1:
        return families[0]
    if not families:
        raise ProblemError(
            f"no family opens {str(data)!r}; name one with --problem FAMILY:{data}. "
            f"Families: {', '.join(sorted(found.families))}"
        )
    names = ", ".join(f.name for f in families)
    raise ConfigError(f"several families open {str(data)!r}: {names}; say --problem FAMILY:{data}")


def build_pool(
    family: Family,
    problem: Problem,
    plugin_path: str,
    methods: Sequence[str],
    models: Sequence[str],
    params: Mapping[str, Mapping[str, Any]],
    samples: int,
    seed: int,
) -> list[Candidate]:
    """The pool of a search, every candidate checked against its method's ranges.

    Args:
        family: The problem's family.
        problem: The problem.
        plugin_path: Folders with loose plugins.
        methods: Methods to try; all that can be used here if empty.
        models: Pretrained models to try; the family's default if empty.
        params: Fixed params by method.
        samples: Settings per method and model.
        seed: Of the sampled settings.

    Raises:
        ConfigError: A number or param cannot be used, or the pool is empty.
    """
    if samples < 1:
        raise ConfigError(f"samples is {samples}, expected 1 or more")
    found = plugins.registry(plugin_path)
    chosen = list(dict.fromkeys(methods)) or found.method_names(family.name)
    classes: dict[str, type[Method[Any, Any]]] = {}
    for method in chosen:
        try:
            cls = found.load_method(family.name, method)
        except PluginError as error:
            if methods:
                raise
            # Nobody asked for this one; a broken plugin must not stop the rest.
            warnings.warn(f"method {method!r} is left out: {error}", LampsWarning, stacklevel=3)
            continue
        if methods or not cls.spec.tags.needs_gpu:
            classes[method] = cls
    unused = set(params) - set(classes)
    if unused:
        word = sorted(unused)[0]
        raise ConfigError(
            f"params are given for {word!r}, which is not in the pool. "
            f"{did_you_mean(word, classes)}"
        )
    known = list(dict.fromkeys(models)) or list(family.default_models(problem))
    pool = family.candidates(problem, classes, known, given=params, per_method=samples, seed=seed)
    if not pool:
        raise ConfigError(
            f"the pool is empty: none of the methods {', '.join(classes)} fits one of the models "
            f"{', '.join(known) or '(none)'}"
        )
    for candidate in pool:
        classes[candidate.method].from_params(candidate.params)
    return pool


def method_classes(
    pool: Sequence[Candidate], plugin_path: str
) -> dict[str, type[Method[Any, Any]]]:
    """The class of each method in a pool, by name."""
    found = plugins.registry(plugin_path)
    return {c.method: found.load_method(c.family, c.method) for c in pool}


def short_label(candidate: Candidate, method: type[Method[Any, Any]]) -> str:
    """Method and what sets this candidate apart.

    Its model and the params that are not the defaults.
    """
    defaults = space.as_json(method.Params())
    params = {k: v for k, v in candidate.params.items() if k not in defaults or v != defaults[k]}
    return Candidate(candidate.family, candidate.method, params).label


def used_models(family: Family, pool: Sequence[Candidate]) -> list[ModelInfo]:
    """The pretrained models that candidates of a pool name."""
    catalogue = family.models()
    if catalogue is None:
        return []
    names = dict.fromkeys(str(c.params["model"]) for c in pool if c.params.get("model"))
    return [catalogue.resolve(n) for n in names]
