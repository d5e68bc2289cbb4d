"""Discovery of families and methods: listed without importing, never fatal.

A family is one entry point in the group ``lamps`` that names a package. Inside it, ``_problem.py``
holds the family's protocol and each public file is a method: ``model_soup.py`` is ``model-soup``.
Another distribution may add methods to a family by an entry point of the same name whose package
has no ``_problem.py``. A folder that the user names (``LAMPS_PLUGIN_PATH``, layout
``FOLDER/FAMILY/METHOD.py``) works the same way; nothing else is ever loaded.

In the folder ``_replications`` of such a package, ``model_soup.py`` holds the replication of the
method ``model-soup``, whoever ships that.

A plugin that is broken, outdated or a duplicate is listed with the reason and never stops the
rest.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from lamps import hookspecs
from lamps.errors import ContractError, PluginError, UnknownMethod, did_you_mean
from lamps.method import CONTRACT_VERSION, Family, Method
from lamps.replication import Replication

GROUP = "lamps"
HOOK_GROUP = "lamps.hooks"
_OURS = "lamps-automl"
_FOLDER_PACKAGE = "lamps_folder_plugins"
_PLUGIN_PATH = "lamps_plugin_path"
_REPLICATIONS = "_replications"


@dataclass(frozen=True, slots=True)
class MethodEntry:
    """Where a method or a replication lives; nothing of it has been imported."""

    family: str
    name: str
    module: str
    path: Path
    distribution: str
    version: str


@dataclass(frozen=True, slots=True)
class FamilyEntry:
    """Where a family's protocol lives."""

    name: str
    package: str
    path: Path
    distribution: str
    version: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """A plugin that cannot be used: its name, where it comes from, and why."""

    name: str
    distribution: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} ({self.distribution}): {self.reason}"


@dataclass(slots=True)
class Registry:
    """All plugins that were found. Build it with `registry`."""

    families: dict[str, FamilyEntry] = field(default_factory=dict)
    methods: dict[tuple[str, str], MethodEntry] = field(default_factory=dict)
    replications: dict[tuple[str, str], MethodEntry] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)
    _loaded: dict[tuple[str, str], type[Method[Any, Any]]] = field(default_factory=dict)
    _opened: dict[str, Family] = field(default_factory=dict)

    def method_names(self, family: str) -> list[str]:
        """Names of the methods of a family, sorted."""
        self.family_entry(family)
        return sorted(name for owner, name in self.methods if owner == family)

    def family_entry(self, name: str) -> FamilyEntry:
        """The entry of a family.

        Raises:
            UnknownMethod: There is none of that name; a family that could not be used is named
                with the reason.
        """
        if name in self.families:
            return self.families[name]
        for trouble in self.troubles:
            if trouble.name == name:
                raise PluginError(f"family {trouble}")
        raise UnknownMethod(f"no family {name!r}. {did_you_mean(name, self.families)}")

    def load_family(self, name: str) -> Family:
        """The family's protocol object; imports its package."""
        if name not in self._opened:
            entry = self.family_entry(name)
            module = _import(f"{entry.package}._problem", name)
            family = getattr(module, "FAMILY", None)
            if not isinstance(family, Family):
                raise ContractError(
                    f"family {name!r}: {entry.package}._problem has no FAMILY that is a "
                    "lamps.method.Family"
                )
            if family.contract != CONTRACT_VERSION:
                raise ContractError(
                    f"family {name!r} from {entry.distribution} {entry.version} is written for "
                    f"plugin contract {family.contract}, this lamps has {CONTRACT_VERSION}. "
                    "Install a release that matches."
                )
            self._opened[name] = family
        return self._opened[name]

    def load_method(self, family: str, name: str) -> type[Method[Any, Any]]:
        """The class of a method; imports its file.

        Raises:
            UnknownMethod: No such method.
            PluginError: Its file cannot be imported.
            ContractError: Its file does not hold exactly one method of that family.
        """
        key = (family, name)
        if key not in self._loaded:
            if key not in self.methods:
                names = self.method_names(family)
                raise UnknownMethod(
                    f"no method {name!r} in family {family!r}. {did_you_mean(name, names)}"
                )
            entry = self.methods[key]
            module = _import(entry.module, f"{family}/{name}")
            self._loaded[key] = _method_class(module, entry)
        return self._loaded[key]

    def find_method(self, name: str) -> MethodEntry:
        """The entry of a method by its bare name or as ``FAMILY/NAME``."""
        family, _, bare = name.rpartition("/")
        found = [
            e
            for (fam, n), e in self.methods.items()
            if n == bare and (not family or fam == family)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            where = ", ".join(f"{e.family}/{e.name}" for e in found)
            raise UnknownMethod(
                f"method {name!r} exists in several families; write one of {where}"
            )
        raise UnknownMethod(
            f"no method {name!r}. {did_you_mean(bare, [n for _, n in self.methods])}"
        )

    def find_replication(self, name: str) -> MethodEntry:
        """The entry of the replication of a method, by the method's bare name or ``FAMILY/NAME``.

        Raises:
            UnknownMethod: No such method, or one without a replication.
        """
        method = self.find_method(name)
        key = (method.family, method.name)
        if key not in self.replications:
            known = ", ".join(sorted(f"{f}/{n}" for f, n in self.replications)) or "none"
            raise UnknownMethod(
                f"method {method.name!r} of family {method.family!r} has no replication. "
                f"Methods with one: {known}"
            )
        return self.replications[key]

    def load_replication(self, family: str, name: str) -> Replication:
        """The replication of a method; imports its file.

        Raises:
            PluginError: Its file cannot be imported.
            ContractError: Its file does not hold exactly one replication with claims of its own.
        """
        entry = self.replications[family, name]
        module = _import(entry.module, f"replication of {family}/{name}")
        return _replication(module, entry)


def _replication(module: ModuleType, entry: MethodEntry) -> Replication:
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Replication)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    ]
    where = f"replication of {entry.family}/{entry.name} from {entry.distribution}"
    if len(found) != 1:
        raise ContractError(
            f"{where}: its file defines {len(found)} replications, expected exactly one"
        )
    made = found[0]()
    ids = [claim.id for claim in getattr(made, "claims", ())]
    if not ids or len(set(ids)) < len(ids):
        raise ContractError(f"{where}: its claims are {ids}, expected at least one, each id once")
    return made


def _method_class(module: ModuleType, entry: MethodEntry) -> type[Method[Any, Any]]:
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Method)
        and value.__module__ == module.__name__
        and "spec" in vars(value)
    ]
    where = f"method {entry.family}/{entry.name} from {entry.distribution}"
    if len(found) != 1:
        raise ContractError(
            f"{where}: its file defines {len(found)} classes with a spec, expected exactly one"
        )
    cls = found[0]
    if cls.spec.family != entry.family:
        raise ContractError(
            f"{where}: spec.family is {cls.spec.family!r}, expected {entry.family!r}"
        )
    if not isinstance(getattr(cls, "Params", None), type):
        raise ContractError(f"{where}: has no Params dataclass")
    return cls


def _import(module: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except PluginError:
        raise
    except (Exception, SystemExit) as error:
        # A plugin's file may raise anything, even leave; its author needs the class and the
        # message, the rest must go on.
        line = " ".join(str(error).split())
        raise PluginError(f"{what} cannot be imported: {type(error).__name__}: {line}") from error


@functools.cache
def _scan(plugin_path: str) -> Registry:
    found = Registry()
    seen: set[tuple[str, str, str]] = set()
    entries: list[tuple[str, str, str, str, Path]] = []
    for dist in sorted(metadata.distributions(), key=_precedence):
        for point in dist.entry_points.select(group=GROUP):
            name, version = str(dist.metadata["Name"]), str(dist.version)
            # An editable install can be listed twice: once by its link, once by the working
            # directory.
            if (point.name, point.value, name) in seen:
                continue
            seen.add((point.name, point.value, name))
            reason = _outdated(dist)
            path = None if reason else _package_path(point.value)
            if reason or path is None:
                found.troubles.append(
                    Trouble(
                        point.name, name, reason or f"package {point.value!r} is not importable"
                    )
                )
                continue
            entries.append((point.name, point.value, name, version, path))
    entries += _folder_entries(plugin_path)
    _register(found, entries)
    return found


def _precedence(dist: metadata.Distribution) -> tuple[bool, str]:
    """Ours before all others, so that no plugin takes over a family that lamps ships."""
    name = str(dist.metadata["Name"] or "")
    return (_canonical(name) != _OURS, name)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _register(found: Registry, entries: list[tuple[str, str, str, str, Path]]) -> None:
    owners = [e for e in entries if (e[4] / "_problem.py").is_file()]
    for family, package, dist, version, path in owners:
        if family in found.families:
            first = found.families[family].distribution
            found.troubles.append(
                Trouble(family, dist, f"duplicate: family {family!r} is already owned by {first}")
            )
            continue
        found.families[family] = FamilyEntry(family, package, path, dist, version)
    usable = []
    # Methods of a family's owner come first, so that nobody can replace one of them.
    for entry in sorted(
        entries, key=lambda e: e[0] in found.families and found.families[e[0]].package != e[1]
    ):
        family, package, dist, version, path = entry
        if family not in found.families:
            found.troubles.append(
                Trouble(family, dist, f"no installed package owns the family {family!r}")
            )
            continue
        if (path / "_problem.py").is_file() and found.families[family].package != package:
            continue  # the duplicate family that was named above
        usable.append(entry)
        for file in sorted(path.glob("[a-zA-Z]*.py")):
            name = file.stem.replace("_", "-")
            if (family, name) in found.methods:
                first = found.methods[family, name].distribution
                found.troubles.append(
                    Trouble(f"{family}/{name}", dist, f"duplicate: already provided by {first}")
                )
                continue
            found.methods[family, name] = MethodEntry(
                family, name, f"{package}.{file.stem}", file, dist, version
            )
    # After all methods: a replication may come before its method, and from somebody else.
    for entry in usable:
        _register_replications(found, entry)


def _register_replications(found: Registry, entry: tuple[str, str, str, str, Path]) -> None:
    family, package, dist, version, path = entry
    for file in sorted((path / _REPLICATIONS).glob("[a-zA-Z]*.py")):
        name = file.stem.replace("_", "-")
        what = f"replication of {family}/{name}"
        if (family, name) in found.replications:
            first = found.replications[family, name].distribution
            found.troubles.append(Trouble(what, dist, f"duplicate: already provided by {first}"))
        elif (family, name) not in found.methods:
            found.troubles.append(Trouble(what, dist, "there is no such method"))
        else:
            module = f"{package}.{_REPLICATIONS}.{file.stem}"
            found.replications[family, name] = MethodEntry(
                family, name, module, file, dist, version
            )


def _package_path(package: str) -> Path | None:
    # find_spec imports parents; the folder of the package itself is enough, so only the top is
    # looked up.
    top, *rest = package.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    for root in spec.submodule_search_locations or () if spec else ():
        path = Path(root).joinpath(*rest)
        if path.is_dir():
            return path
    return None


def _outdated(dist: metadata.Distribution) -> str | None:
    from packaging.requirements import InvalidRequirement, Requirement

    for text in dist.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if _canonical(requirement.name) != _OURS:
            continue
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue  # asked for by an extra, or on another platform
        here = metadata.version(_OURS)
        if not requirement.specifier.contains(here, prereleases=True):
            return f"outdated: needs {_OURS}{requirement.specifier}, this is {here}"
    return None


def _folder_entries(plugin_path: str) -> Iterator[tuple[str, str, str, str, Path]]:
    for text in filter(None, plugin_path.split(os.pathsep)):
        root = Path(text).resolve()
        if not root.is_dir():
            raise PluginError(f"plugin folder {text!r} does not exist")
        # Named after the folder, so that two searches with other folders in one process, and two
        # processes with the same, agree on what a module is.
        base = f"{_FOLDER_PACKAGE}_{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"
        package = sys.modules.setdefault(base, ModuleType(base))
        package.__path__ = [str(root)]
        vars(package)[_PLUGIN_PATH] = plugin_path
        for folder in sorted(p for p in root.iterdir() if p.is_dir() and p.name[0].isalpha()):
            yield (
                folder.name.replace("_", "-"),
                f"{base}.{folder.name}",
                str(root),
                "folder",
                folder,
            )


def plugin_path_of(cls: type) -> str:
    """The plugin path by which a class was found; empty for one of an installed package."""
    package = sys.modules[cls.__module__.split(".")[0]]
    return str(vars(package).get(_PLUGIN_PATH, ""))


def registry(plugin_path: str | None = None) -> Registry:
    """All plugins of this environment; scanned once per process and plugin path."""
    path = os.environ.get("LAMPS_PLUGIN_PATH", "") if plugin_path is None else plugin_path
    return _scan(path)


def rescan() -> None:
    """Forget what was found, after a distribution was installed or removed in this process."""
    _scan.cache_clear()
    hooks.cache_clear()
    importlib.invalidate_caches()


@functools.cache
def hooks() -> pluggy.PluginManager:
    """The plugin manager with every ``lamps.hooks`` entry point that can be imported."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for point in metadata.entry_points(group=HOOK_GROUP):
        try:
            manager.register(point.load(), name=point.name)
        except (Exception, SystemExit) as error:
            dist = point.dist.metadata["Name"] if point.dist else "unknown"
            registry().troubles.append(
                Trouble(point.name, dist, f"hooks cannot be used: {type(error).__name__}: {error}")
            )
    return manager
