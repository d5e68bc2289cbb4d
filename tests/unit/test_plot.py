"""Pictures of fronts."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from lamps.errors import ConfigError
from lamps.front import Front, Member
from lamps.plot import plot_front
from lamps.types import Candidate, Objective

from ._members import ACCURACY, ERROR, LATENCY, member, pool

THREE = (ERROR, LATENCY, ACCURACY)


@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG\r\n"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_the_suffix_is_the_format(suffix: str, magic: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"front.{suffix}"
    front = Front.of(pool(), THREE)
    plot_front(front, front, path, title="a run")
    content = path.read_bytes()
    assert content.startswith(magic)
    assert len(content) > 5000


def words(path: Path) -> str:
    root = ElementTree.parse(path).getroot()
    return "\n".join("".join(node.itertext()) for node in root.iter() if node.tag.endswith("text"))


def test_every_member_axis_and_title_is_named(tmp_path: Path) -> None:
    path = tmp_path / "front.svg"
    front = Front.of(pool(), THREE)
    plot_front(front, front, path, title="reviews")
    text = words(path)
    for word in ("#0 m", "#1 m", "#2 m", "#4 m", "latency_ms [ms]", "val_error [1]", "reviews"):
        assert word in text
    assert "#3" not in text


@pytest.mark.parametrize("word", ["a $x^2$ b", "$", "<b>&amp;</b>", r"\frac{1}{2}", "50 % $a_{$"])
def test_labels_are_text_and_no_markup(word: str, tmp_path: Path) -> None:
    unit = Objective("cost", word)
    one = Member(
        index=0,
        candidate=Candidate("f", word, {}),
        label=word,
        fidelity=1.0,
        values={"val_error": 0.1, "cost": 1.0},
        test={},
    )
    front = Front.of([one, one], (ERROR, unit))
    path = tmp_path / "front.svg"
    plot_front(front, front, path, title=word)
    text = words(path)
    assert word in text
    assert f"cost [{word}]" in text
    assert f"#0 {word}" in text


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    empty = Front.of([], THREE)
    with pytest.raises(ConfigError, match="the front is empty"):
        plot_front(empty, empty, tmp_path / "f.png")
    flat = Front.of(pool(), (ERROR,))
    with pytest.raises(ConfigError, match="two objectives or more"):
        plot_front(flat, flat, tmp_path / "f.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["f.xyz", "nowhere/f.png"])
def test_files_that_cannot_be_drawn_are_refused(name: str, tmp_path: Path) -> None:
    front = Front.of(pool(), THREE)
    with pytest.raises(ConfigError, match="cannot draw into") as caught:
        plot_front(front, front, tmp_path / name)
    assert "\n" not in str(caught.value)


def test_wide_ranges_zeros_and_holes_are_drawn(tmp_path: Path) -> None:
    members = [
        member(0, val_error=0.0, latency_ms=1e-3),
        member(1, val_error=-1.0, latency_ms=1e9),
        member(2, val_error=float("nan"), latency_ms=3.0),
        member(3, val_error=float("inf"), latency_ms=3.0),
    ]
    front = Front.of(members, (ERROR, LATENCY))
    plot_front(front, front, tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size > 5000


def test_the_users_own_pyplot_is_left_alone(tmp_path: Path) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    front = Front.of(pool(), THREE)
    plot_front(front, front, tmp_path / "f.png")
    assert dict(mpl.rcParams) == before
    assert front[0].index == 2
