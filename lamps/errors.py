"""Every exception of lamps, in one tree; this module imports nothing of ours.

```
LampsError
├── ConfigError (ValueError)        a setting, flag or budget that cannot be used
├── PluginError                     something about a plugin
│   ├── ContractError               a plugin breaks the method contract
│   └── UnknownMethod (KeyError)    no method, family or policy of that name
├── ProblemError (ValueError)       data, models or objectives that cannot be used
├── StoreError                      the database cannot do what was asked
│   └── SchemaMismatch              the database has another schema version
├── StateError                      a move the state machine does not allow
├── BudgetExhausted                 a run may spend nothing more
├── TrialError                      one trial went wrong, the run goes on
│   ├── MethodFailed                the method raised or returned nonsense
│   └── WorkerLost (Transient)      the process that ran the landmark vanished
└── MissingExtra (ImportError)      an optional dependency is not installed
```

`Transient` is a mix-in: an error that carries it may be retried as it is. Nothing else is retried.
Messages say what came, what was expected and what to do next. All exceptions survive pickling with
their fields, because they cross process borders inside Ray.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class LampsWarning(UserWarning):
    """Something was left out or replaced, and the rest goes on."""


class LampsError(Exception):
    """Root of all errors that lamps raises on purpose."""

    def __str__(self) -> str:
        # KeyError prints the repr of its argument; ours print the message.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(cls: type[LampsError], args: tuple[Any, ...], fields: dict[str, Any]) -> LampsError:
    error = cls.__new__(cls, *args)
    # Past our own constructors, which take other arguments, to the built-in base: ImportError
    # fills fields of its own.
    super(LampsError, error).__init__(*args)
    error.__dict__.update(fields)
    return error


class Transient:
    """Mix-in for errors after which the same call may succeed."""


class ConfigError(LampsError, ValueError):
    """A setting, flag, budget or environment value cannot be used."""


class PluginError(LampsError):
    """A plugin cannot be found, loaded or used."""


class ContractError(PluginError):
    """A plugin breaks the method contract."""


class UnknownMethod(PluginError, KeyError):
    """No method, family or policy of that name is known."""


class ProblemError(LampsError, ValueError):
    """Data, models or objectives cannot be used as a problem."""


class StoreError(LampsError):
    """The database cannot do what was asked."""


class SchemaMismatch(StoreError):
    """The database has another schema version than this release of lamps."""


class StateError(LampsError):
    """A move that the state machine does not allow."""


class BudgetExhausted(LampsError):
    """A run may spend nothing more."""


class TrialError(LampsError):
    """One trial went wrong; the run goes on."""


class MethodFailed(TrialError):
    """A method raised, or returned something that is not an evaluation."""


class WorkerLost(TrialError, Transient):
    """The process that ran a landmark vanished."""


class MissingExtra(LampsError, ImportError):
    """An optional dependency is not installed.

    Args:
        feature: What needs it, as a noun phrase.
        module: The module that could not be imported.
        extra: The extra of lamps that brings it.
    """

    def __init__(self, feature: str, module: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs {module}. Install it with: pip install 'lamps-automl[{extra}]'"
        )
        self.feature, self.module, self.extra = feature, module, extra


MOST_NAMES = 40
"""How many known names a message lists."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The tail of an error message that lists what is known and suggests the nearest name.

    Example:
        >>> did_you_mean("tsies", ["ties", "dare"])
        "Known: dare, ties. Did you mean 'ties'?"
    """
    names = sorted(known)
    if not names:
        return "None is known."
    near = difflib.get_close_matches(word, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"Known: {', '.join(names[:MOST_NAMES])}{more}.{hint}"
