"""Texts at several granularities against k-means, against one granularity, and against ablations.

Paper: MAGIC: Multi-Granularity Language-Informed Image Clustering, ICML 2026. It embeds images and
captions by one joint model; here encoders were trained apart, on emoji with their Unicode names
and on digits with descriptions made by rules, so every claim is a hypothesis about other data. All
trained methods share features, epochs, batches and learning rate; truth is looked at after the
last epoch alone.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from lamps.replication import Ask, Claim, Measurement, Profile, Replication, Say
from lamps.types import Json, digest
from lamps_plugins._views import metrics
from lamps_plugins._views.clusterer import Clusterer
from lamps_plugins._views.data import ViewData
from lamps_plugins.image_clustering._digits import described_digits
from lamps_plugins.image_clustering._emoji import VERSION, emoji, emoji_folder
from lamps_plugins.image_clustering._encoders import IMAGE_ENCODERS
from lamps_plugins.image_clustering._opening import encoded, with_hidden_texts
from lamps_plugins.image_clustering._options import ENCODERS
from lamps_plugins.image_clustering._problem import unit_rows_of
from lamps_plugins.image_clustering.joint_kmeans import JointKmeans
from lamps_plugins.image_clustering.magic import Magic
from lamps_plugins.image_clustering.scan import Scan
from lamps_plugins.image_clustering.tac import Tac
from lamps_plugins.image_clustering.text_kmeans import TextKmeans

EPOCHS: Mapping[Profile, int] = {"quick": 30, "full": 100}
WIDTH: Mapping[Profile, int] = {"quick": 192, "full": 384}
RATE, BATCH = 1e-3, 256
DIGITS, EXTRA = 2000, 4
HIDDEN = 0.5
SPARED = 0.7  # share of the drop that may stay where adapters take 30 % of it away
TIMED = 256


class MagicReplication(Replication):
    """NMI of labels by the image head."""

    claims = (
        Claim(
            id="C1",
            statement="It beats k-means on images with texts.",
            quantity="NMI on emoji, MAGIC / k-means on image and texts",
            compare="ratio", direction=">=", threshold=1.03,
        ),
        Claim(
            id="C1t",
            statement="It is at least as good as text-aided clustering, trained.",
            quantity="NMI on emoji, MAGIC / TAC",
            compare="ratio", direction=">=", threshold=1.0,
        ),
        Claim(
            id="C1x",
            statement="It beats k-means on the texts alone.",
            quantity="NMI on emoji, MAGIC / k-means on texts",
            compare="ratio", direction=">", threshold=1.0, source="ours",
        ),
        Claim(
            id="C2",
            statement="Two granularities are at least as good as the better one of them.",
            quantity="NMI on emoji, both / better of fine and coarse",
            compare="ratio", direction=">=", threshold=1.0,
        ),
        Claim(
            id="C2a",
            statement="Adapters help.",
            quantity="NMI on emoji, MAGIC - MAGIC without adapters",
            compare="difference", direction=">", threshold=0.0,
        ),
        Claim(
            id="C2b",
            statement="A teacher that sees both helps.",
            quantity="NMI on emoji, MAGIC - MAGIC whose teacher sees texts alone",
            compare="difference", direction=">", threshold=0.0,
        ),
        Claim(
            id="C3",
            statement="Adapters take away 30 % of what irrelevant facts cost.",
            quantity="drop of NMI on described digits by 4 facts, with adapters - 0.7 x without",
            compare="difference", direction="<=", threshold=0.0,
        ),
        Claim(
            id="C4",
            statement="An answer by the image head costs no more than without texts.",
            quantity="CPU ms an image, encoder and head, MAGIC / SCAN",
            compare="ratio", direction="<=", threshold=1.1, certain=False,
        ),
        Claim(
            id="C5",
            statement="Texts seen in training help images that have none.",
            quantity="NMI on the half of emoji whose texts are hidden, MAGIC / SCAN",
            compare="ratio", direction=">", threshold=1.0, source="ours",
        ),
        Claim(
            id="N1",
            statement="With texts of other images it beats k-means as well.",
            quantity="NMI on emoji, MAGIC with shuffled texts / k-means on image and texts",
            compare="ratio", direction=">=", threshold=1.03, source="ours", control=True,
        ),
    )  # fmt: skip

    def seeds(self, profile: Profile) -> tuple[int, ...]:
        """Five, of initialisation and draws."""
        return (0, 1, 2, 3, 4)

    def fingerprint(self, profile: Profile) -> str:
        """Hash of data and settings."""
        held = (emoji_folder() / "emoji.json").stat().st_size
        settings = [
            EPOCHS[profile],
            WIDTH[profile],
            RATE,
            BATCH,
            DIGITS,
            EXTRA,
            HIDDEN,
            ENCODERS[0],
        ]
        return digest([VERSION, held, *settings])

    def prepare(self, profile: Profile, say: Say) -> None:
        """Encode pictures and texts once."""
        say("features of emoji and of digits")
        _emoji_data()

    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """Pairs of one seed."""
        with threadpool_limits(1):
            yield from _emoji_pairs(ask)
            yield from _hidden(ask)
            yield from _digit_pairs(ask)
            yield from _latency(ask)


def _emoji_data() -> tuple[ViewData, NDArray[np.int64]]:
    described = emoji()
    assert described.truth is not None
    data = encoded(described, len(described.classes), {})
    return unit_rows_of(data), described.truth


def _labels(
    kind: type[Clusterer[Any]], data: ViewData, ask: Ask, **params: Json
) -> NDArray[np.int64]:
    trained: dict[str, Json] = {}
    if kind in (Magic, Tac, Scan):
        size = {"epochs": EPOCHS[ask.profile], "width": WIDTH[ask.profile]}
        trained = {**size, "rate": RATE, "batch": BATCH}
    method = kind.from_params({**trained, **params})
    return method.cluster(data, rng=np.random.default_rng(ask.seed)).labels


def _emoji_pairs(ask: Ask) -> Iterator[Measurement]:
    if not ask.wants("C1", "C1t", "C1x", "C2", "C2a", "C2b", "N1", unit="emoji"):
        return
    data, truth = _emoji_data()
    order = np.random.default_rng(ask.seed).permutation(data.n)
    shuffled = dataclasses.replace(
        data, arrays=(data.arrays[0], *(a[order] for a in data.arrays[1:]))
    )
    runs: Mapping[str, tuple[type[Clusterer[Any]], ViewData, dict[str, Json]]] = {
        "joint": (JointKmeans, data, {}),
        "text": (TextKmeans, data, {}),
        "text fine": (TextKmeans, data, {"granularities": "fine"}),
        "tac": (Tac, data, {}),
        "magic": (Magic, data, {}),
        "fine": (Magic, data, {"granularities": "fine"}),
        "coarse": (Magic, data, {"granularities": "coarse"}),
        "no adapters": (Magic, data, {"adapters": False}),
        "no consensus": (Magic, data, {"consensus": False}),
        "shuffled": (Magic, shuffled, {}),
    }
    nmi: dict[str, float] = {}
    details: dict[str, Json] = {}
    for name, (kind, views, params) in runs.items():
        ask.say(f"seed {ask.seed}: emoji, {name}")
        labels = _labels(kind, views, ask, **params)
        nmi[name] = metrics.nmi(truth, labels)
        details[name] = round(nmi[name], 4)
        details[f"{name}: acc"] = round(metrics.accuracy(truth, labels), 4)
    yield ask.measured("C1", "emoji", nmi["magic"], nmi["joint"], **details)
    yield ask.measured("C1t", "emoji", nmi["magic"], nmi["tac"])
    yield ask.measured("C1x", "emoji", nmi["magic"], max(nmi["text"], nmi["text fine"]))
    yield ask.measured("C2", "emoji", nmi["magic"], max(nmi["fine"], nmi["coarse"]))
    yield ask.measured("C2a", "emoji", nmi["magic"], nmi["no adapters"])
    yield ask.measured("C2b", "emoji", nmi["magic"], nmi["no consensus"])
    yield ask.measured("N1", "emoji", nmi["shuffled"], nmi["joint"])


def _hidden(ask: Ask) -> Iterator[Measurement]:
    if not ask.wants("C5", unit="hidden emoji"):
        return
    ask.say(f"seed {ask.seed}: emoji, half of the texts hidden")
    data, truth = _emoji_data()
    half = with_hidden_texts(data, HIDDEN, ask.seed)
    gone = ~half.mask[:, 1]
    found = {kind: _labels(kind, half, ask)[gone] for kind in (Magic, Scan, JointKmeans)}
    nmi = {kind: metrics.nmi(truth[gone], labels) for kind, labels in found.items()}
    yield ask.measured(
        "C5", "hidden emoji", nmi[Magic], nmi[Scan], joint=round(nmi[JointKmeans], 4)
    )


def _digit_pairs(ask: Ask) -> Iterator[Measurement]:
    if not ask.wants("C3", unit="mnist-text"):
        return
    nmi: dict[tuple[int, bool], float] = {}
    for extra in (0, EXTRA):
        described = described_digits(DIGITS, extra, 0)
        assert described.truth is not None
        data = unit_rows_of(encoded(described, 10, {}))
        for adapters in (True, False):
            ask.say(f"seed {ask.seed}: digits, {extra} facts, adapters {adapters}")
            labels = _labels(Magic, data, ask, adapters=adapters)
            nmi[extra, adapters] = metrics.nmi(described.truth, labels)
    drop = {adapters: nmi[0, adapters] - nmi[EXTRA, adapters] for adapters in (True, False)}
    details: dict[str, Json] = {
        f"{extra} facts, adapters {adapters}": round(v, 4) for (extra, adapters), v in nmi.items()
    }
    yield ask.measured("C3", "mnist-text", drop[True], SPARED * drop[False], **details)


def _latency(ask: Ask) -> Iterator[Measurement]:
    if not ask.wants("C4", unit="emoji"):
        return
    ask.say(f"seed {ask.seed}: latency")
    data, _ = _emoji_data()
    few = data.take(np.arange(TIMED, dtype=np.int64))
    encoder = _encoder_ms(ask.seed)
    heads = {}
    for kind in (Magic, Scan):
        method = kind.from_params({"epochs": 10, "neighbours": 5})
        method.cluster(few, rng=np.random.default_rng(ask.seed))
        spent = []
        for _ in range(21):
            started = time.process_time()
            method.assign(few)
            spent.append(1000.0 * (time.process_time() - started) / TIMED)
        heads[kind] = float(np.median(spent))
    yield ask.measured(
        "C4", "emoji", encoder + heads[Magic], encoder + heads[Scan],
        encoder_ms=encoder, magic_head_ms=heads[Magic], scan_head_ms=heads[Scan],
    )  # fmt: skip


def _encoder_ms(seed: int) -> float:
    """Milliseconds an image of the encoder, uncached; opening the network does not count."""
    images = np.random.default_rng(seed).integers(256, size=(48, 64, 64, 3), dtype=np.uint8)
    spent = []
    for n in (16, 48):
        started = time.process_time()
        IMAGE_ENCODERS[ENCODERS[0]](images[:n])
        spent.append(time.process_time() - started)
    return max(0.0, 1000.0 * (spent[1] - spent[0]) / 32)
