"""The tree of exceptions: what its docstring draws, and fit to cross process borders."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Iterator

import pytest

from lamps import errors
from lamps.errors import LampsError, MissingExtra, Transient, did_you_mean


def tree(root: type[LampsError] = LampsError) -> Iterator[type[LampsError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


def make(cls: type[LampsError]) -> LampsError:
    if cls is MissingExtra:
        return MissingExtra("drawing", "matplotlib", "plot")
    return cls("what came, what was expected, what to do")


@pytest.mark.parametrize("cls", list(tree()), ids=lambda c: c.__name__)
def test_every_error_survives_pickling_with_its_fields(cls: type[LampsError]) -> None:
    error = make(cls)
    error.add_note("seen in trial 3")
    error.trial = 3  # type: ignore[attr-defined]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        twin = pickle.loads(pickle.dumps(error, protocol))
        assert type(twin) is cls
        assert str(twin) == str(error)
        assert twin.args == error.args
        assert twin.__dict__ == error.__dict__
        assert twin.__notes__ == ["seen in trial 3"]
        assert getattr(twin, "msg", None) == getattr(error, "msg", None)


def test_missing_extra_keeps_what_is_missing() -> None:
    twin = pickle.loads(pickle.dumps(MissingExtra("the 'ray' backend", "ray", "ray")))
    assert (twin.feature, twin.module, twin.extra) == ("the 'ray' backend", "ray", "ray")
    assert str(twin) == (
        "the 'ray' backend needs ray. Install it with: pip install 'lamps-automl[ray]'"
    )


@pytest.mark.parametrize("cls", list(tree()), ids=lambda c: c.__name__)
def test_the_message_is_the_text_that_was_given(cls: type[LampsError]) -> None:
    """KeyError would print the repr of it."""
    assert "'" not in str(make(cls)) or cls is MissingExtra
    assert str(cls.__new__(cls)) == ""


def test_the_docstring_draws_the_real_tree() -> None:
    drawn: dict[str, tuple[str, set[str]]] = {}
    path: list[tuple[int, str]] = []
    for line in inspect.getdoc(errors).split("```")[1].splitlines():  # type: ignore[union-attr]
        match = re.search(r"(\w+)(?: \((.*?)\))?", line)
        if not match:
            continue
        depth = match.start()
        path = [p for p in path if p[0] < depth]
        name, others = match.groups()
        drawn[name] = (path[-1][1] if path else "Exception", set(filter(None, [others])))
        path.append((depth, name))
    real = {}
    for cls in tree():
        ours = [b for b in cls.__bases__ if issubclass(b, LampsError)]
        rest = {b.__name__ for b in cls.__bases__ if not issubclass(b, LampsError)} - {"Exception"}
        real[cls.__name__] = (ours[0].__name__ if ours else "Exception", rest)
    assert drawn == real


def test_built_in_bases_catch_ours() -> None:
    for cls, built_in in (
        (errors.ConfigError, ValueError),
        (errors.ProblemError, ValueError),
        (errors.UnknownMethod, KeyError),
        (errors.UnknownMethod, LookupError),
        (errors.MissingExtra, ImportError),
    ):
        with pytest.raises(built_in):
            raise make(cls)


def test_only_a_lost_worker_may_be_tried_again() -> None:
    assert [c.__name__ for c in tree() if issubclass(c, Transient)] == ["WorkerLost"]


@pytest.mark.parametrize(
    ("word", "known", "text"),
    [
        ("tsies", ["ties", "dare"], "Known: dare, ties. Did you mean 'ties'?"),
        ("zzz", ["ties", "dare"], "Known: dare, ties."),
        ("x", [], "None is known."),
        ("a", iter(["b"]), "Known: b."),
    ],
)
def test_did_you_mean(word: str, known: list[str], text: str) -> None:
    assert did_you_mean(word, known) == text
