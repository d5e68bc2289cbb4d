"""Experts as updates of their base: fully fine-tuned folders, LoRA and OFT adapters of peft.

Whatever an expert is, ``delta`` gives its update ``W_i - W_0``. Adapters offer more: LoRA its
factors, OFT the skew matrices of its rotations,

    LoRA   D = s B A,                 s = alpha / r, or alpha / sqrt(r) for rsLoRA              (1)
    OFT    W = W_0 (I - Q)^-1 (I + Q),    Q = S - S^T block-diagonal, S the stored triangle     (2)

Sources: Hu et al. 2022 (arXiv 2106.09685), Kalajdzievski 2023 (arXiv 2312.03732), Qiu et al. 2023
(arXiv 2306.07280); the layouts are those of peft.
"""

from __future__ import annotations

import functools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lamps.errors import ProblemError
from lamps.types import digest
from lamps_plugins.model_merging._checkpoints import (
    Checkpoint,
    TensorInfo,
    load_tensor,
    open_checkpoint,
    open_config,
    read_json,
    read_tensors,
    split_names,
)
from lamps_plugins.text_classification._models import hash_files

if TYPE_CHECKING:
    import torch

ADAPTER_CONFIG, ADAPTER_FILE = "adapter_config.json", "adapter_model.safetensors"
_PEFT_PREFIX = "base_model.model."


class Expert(ABC):
    """One expert beside its base; picklable, reads weights only when asked.

    Args:
        name: Name of its task.
        folder: Where it lies.
        base: The base it was fine-tuned from.
        config: Config of the expert's classifier; its labels come from here.
        tensors: Tensors that it stores for the encoder, by canonical name.
        head: Tensors of its head by full name, those that it takes from the base included.
        files: Its weight files.
    """

    kind: ClassVar[str]

    def __init__(
        self,
        name: str,
        folder: Path,
        base: Checkpoint,
        config: Mapping[str, Any],
        tensors: Mapping[str, TensorInfo],
        head: Mapping[str, TensorInfo],
        files: tuple[Path, ...],
    ) -> None:
        self.name, self.folder, self.base = name, folder, base
        self.config, self.tensors, self.head_infos, self.files = config, tensors, head, files

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in the order of the logits."""
        names = {int(k): str(v) for k, v in self.config["id2label"].items()}
        return tuple(names[i] for i in sorted(names))

    @property
    def sha256(self) -> str:
        """Hash of its weights and of what its adapter's config says."""
        weights = hash_files(self.files)
        config = self.folder / ADAPTER_CONFIG
        return digest([weights, hash_files([config])]) if config.is_file() else weights

    def head(self) -> dict[str, torch.Tensor]:
        """Its classification head, float32 by full name."""
        return {name: load_tensor(info) for name, info in self.head_infos.items()}

    @property
    @abstractmethod
    def moved(self) -> frozenset[str]:
        """Canonical names of the tensors of the encoder that it may have moved."""

    @abstractmethod
    def delta(self, names: tuple[str, ...]) -> torch.Tensor:
        """Its update of tensors of equal shape, zero where it has none.

        Shape:
            Returns [L, m, n] or [L, d], float32.
        """

    def _stored(self, name: str) -> torch.Tensor:
        """Update of a tensor that it stores whole."""
        return load_tensor(self.tensors[name]).sub_(self.base.tensor(name))

    def _zeros(self, name: str) -> torch.Tensor:
        import torch

        return torch.zeros(self.base.encoder[name].shape)


class FullExpert(Expert):
    """All weights, fine-tuned."""

    kind = "full"

    @property
    def moved(self) -> frozenset[str]:
        """See `Expert.moved`: everything it has in common with the base."""
        return frozenset(self.tensors) & frozenset(self.base.encoder)

    def delta(self, names: tuple[str, ...]) -> torch.Tensor:
        """See `Expert.delta`."""
        import torch

        return torch.stack([self._stored(name) for name in names])


class AdapterExpert(Expert):
    """An adapter of peft on the base; layers without one keep the base's weights."""

    @functools.cached_property
    def adapter(self) -> dict[str, Any]:
        """The adapter's config."""
        return read_json(self.folder / ADAPTER_CONFIG)

    @property
    def moved(self) -> frozenset[str]:
        """See `Expert.moved`: adapted weights, and those that the adapter stores whole."""
        whole = {name for name in self.tensors if name in self.base.encoder}
        return frozenset(whole | set(self.adapted))

    @functools.cached_property
    def adapted(self) -> dict[str, str]:
        """Canonical name of each adapted weight, and its module as the adapter names it."""
        ends = tuple(f".{part}" for part in self.parts)
        modules = {
            name[: -len(end)] for name in self.tensors for end in ends if name.endswith(end)
        }
        return {f"{module}.weight": module for module in sorted(modules)}

    parts: ClassVar[tuple[str, ...]]
    """Names of the stored parts of one adapted layer."""

    def delta(self, names: tuple[str, ...]) -> torch.Tensor:
        """See `Expert.delta`."""
        import torch

        return torch.stack([self._one(name) for name in names])

    def _one(self, name: str) -> torch.Tensor:
        if name in self.adapted:
            return self._adapted(name)
        return self._stored(name) if name in self.tensors else self._zeros(name)

    @abstractmethod
    def _adapted(self, name: str) -> torch.Tensor:
        """Update [m, n] of an adapted weight."""

    def _part(self, name: str, part: str) -> torch.Tensor:
        return load_tensor(self.tensors[f"{self.adapted[name]}.{part}"])


class LoraExpert(AdapterExpert):
    """Low-rank updates, rsLoRA and ranks or scales by layer included."""

    kind = "lora"
    parts = ("lora_A.weight", "lora_B.weight")

    def scale(self, name: str) -> float:
        """``s`` of equation (1)."""
        rank = self.tensors[f"{self.adapted[name]}.{self.parts[0]}"].shape[0]
        alpha = float(self.adapter["lora_alpha"])
        for pattern, value in (self.adapter.get("alpha_pattern") or {}).items():
            # peft takes the first pattern that ends the layer's name.
            if re.match(rf"(.*\.)?({pattern})$", self.base.full_name(self.adapted[name])):
                alpha = float(value)
                break
        return alpha / (math.sqrt(rank) if self.adapter.get("use_rslora") else rank)

    def factors(self, names: tuple[str, ...]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """``B [L, m, r]``, ``A [L, r, n]`` and scales ``[L]`` of weights of equal shape, float32.

        ``r`` is the largest rank among them; smaller ones are filled up with zeros, which changes
        nothing. A layer without an adapter has factors and scale zero.

        Raises:
            ProblemError: A weight was stored whole, so it has no factors.
        """
        import torch

        ranks = [
            self.tensors[f"{self.adapted[n]}.{self.parts[0]}"].shape[0]
            for n in names
            if n in self.adapted
        ]
        m, n = self.base.encoder[names[0]].shape
        r = max(ranks, default=1)
        b, a = torch.zeros(len(names), m, r), torch.zeros(len(names), r, n)
        scales = torch.zeros(len(names))
        for i, name in enumerate(names):
            if name in self.adapted:
                left, right = self._part(name, self.parts[1]), self._part(name, self.parts[0])
                if self.adapter.get("fan_in_fan_out"):
                    left, right = right.T, left.T
                b[i, :, : left.shape[1]], a[i, : right.shape[0]] = left, right
                scales[i] = self.scale(name)
            elif name in self.tensors:
                raise ProblemError(
                    f"expert {self.name!r} stores {name!r} whole, so it has no low-rank factors"
                )
        return b, a, scales

    def _adapted(self, name: str) -> torch.Tensor:
        product = self._part(name, self.parts[1]) @ self._part(name, self.parts[0])
        return self.scale(name) * (product.T if self.adapter.get("fan_in_fan_out") else product)


class OftExpert(AdapterExpert):
    """Block-diagonal rotations of the inputs of each layer."""

    kind = "oft"
    parts = ("oft_R.weight",)

    def skew(self, names: tuple[str, ...]) -> torch.Tensor:
        """``Q`` of equation (2) as its blocks; zero for layers without an adapter.

        Shape:
            Returns [L, n / b, b, b] float32 for weights [m, n] and block size b.

        Raises:
            ProblemError: The layers have other block sizes.
        """
        import torch

        blocks = {n: self._skew(n) for n in names if n in self.adapted}
        sizes = {tuple(q.shape) for q in blocks.values()}
        if len(sizes) > 1:
            raise ProblemError(
                f"expert {self.name!r} has OFT blocks of several shapes: {sorted(sizes)}"
            )
        if not sizes:
            raise ProblemError(f"expert {self.name!r} rotates none of {list(names)}")
        empty = torch.zeros(sizes.pop())
        return torch.stack([blocks.get(name, empty) for name in names])

    def rotation(self, name: str) -> torch.Tensor:
        """``(I - Q)^-1 (I + Q)`` [n / b, b, b], or peft's series for it where the expert used it.

        The series cuts ``I + 2 (Q + Q^2 + ...)``, the last term with half the weight, so it is not
        quite orthogonal; peft takes the same for three terms as for four.
        """
        import torch

        q = self._skew(name)
        eye = torch.eye(q.shape[-1]).expand_as(q)
        if not self._series:
            exact: torch.Tensor = torch.linalg.solve(eye - q, eye + q)
            return exact
        terms = int(self.adapter["num_cayley_neumann_terms"])
        last = 1 if terms == 2 else max(terms - 1, 3) if terms > 2 else 0
        result, power = eye.clone(), eye
        for i in range(1, last + 1):
            power = power @ q
            result += power if i == last > 1 else 2.0 * power
        return result

    @property
    def _series(self) -> bool:
        return bool(self.adapter.get("use_cayley_neumann", False))

    def _skew(self, name: str) -> torch.Tensor:
        import torch

        stored = self._part(name, self.parts[0])
        b = round((1 + math.sqrt(1 + 8 * stored.shape[1])) / 2)
        rows, columns = torch.triu_indices(b, b, 1)
        upper = torch.zeros(len(stored), b, b)
        upper[:, rows, columns] = stored
        # peft's series turns the other way than its exact form does.
        skew = upper.transpose(1, 2) - upper if self._series else upper - upper.transpose(1, 2)
        n_blocks = self.base.encoder[name].shape[1] // b
        return skew.expand(n_blocks, b, b) if len(skew) == 1 else skew  # one for all: block_share

    def _adapted(self, name: str) -> torch.Tensor:
        import torch

        base, rotation = self.base.tensor(name), self.rotation(name)
        n_blocks, b = rotation.shape[:2]
        turned = torch.einsum("mkb,kbc->mkc", base.view(len(base), n_blocks, b), rotation)
        return turned.reshape(base.shape) - base


_KINDS: dict[str, type[AdapterExpert]] = {"LORA": LoraExpert, "OFT": OftExpert}
_REFUSED = (
    "use_dora", "use_qalora", "use_bdlora", "lora_bias", "target_parameters", "layer_replication",
    "alora_invocation_tokens", "arrow_config", "kasa_config", "velora_config",
    "monteclora_config", "trainable_token_indices", "coft",
)  # fmt: skip
"""Options of peft under which the update is not that of equation (1) or (2)."""

_CHANGE_THE_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Ways to start LoRA that subtract something from the base first."""


def open_expert(name: str, folder: Path, base: Checkpoint) -> Expert:
    """Open an expert's folder, whole model or adapter; reads headers only.

    Raises:
        ProblemError: It is neither, or of a kind that has no exact update; one line says why.
    """
    if not folder.is_dir():
        raise ProblemError(f"expert {name!r}: {folder} is no folder")
    if (folder / ADAPTER_CONFIG).is_file():
        return _open_adapter(name, folder, base)
    found = open_checkpoint(folder)
    head = dict(found.head)
    return FullExpert(name, folder, base, found.config, found.encoder, head, found.files)


def _open_adapter(name: str, folder: Path, base: Checkpoint) -> Expert:
    adapter = read_json(folder / ADAPTER_CONFIG)
    kind = str(adapter.get("peft_type"))
    if kind not in _KINDS:
        raise ProblemError(
            f"expert {name!r} is an adapter of kind {kind}, expected {' or '.join(_KINDS)}; merge "
            "it into the weights with merge_and_unload and save the whole model"
        )
    start = str(adapter.get("init_lora_weights", ""))
    odd = [option for option in _REFUSED if adapter.get(option)]
    odd += [f"init_lora_weights={start}"] if start.startswith(_CHANGE_THE_BASE) else []
    odd += ["fan_in_fan_out"] if kind == "OFT" and adapter.get("fan_in_fan_out") else []
    if odd:
        raise ProblemError(
            f"expert {name!r} is a {kind} adapter with {odd[0]}, which cannot be merged as it is; "
            "fold it into the weights with merge_and_unload and save the whole model"
        )
    file = folder / ADAPTER_FILE
    if not file.is_file():
        raise ProblemError(
            f"expert {name!r}: {folder} has no {ADAPTER_FILE}; save it with safe_serialization"
        )
    if not (folder / "config.json").is_file():
        raise ProblemError(
            f"expert {name!r}: {folder} has no config.json, which names its labels; save the "
            "classifier's config beside the adapter: model.config.save_pretrained(FOLDER)"
        )
    config, prefix = open_config(folder)
    stored = {
        key.removeprefix(_PEFT_PREFIX).replace(".base_layer.", "."): info
        for key, info in read_tensors(folder, [file]).items()
    }
    inner, head = split_names(stored, prefix)
    head = {key: info for key, info in base.head.items() if key.startswith(f"{prefix}.")} | head
    return _KINDS[kind](name, folder, base, config, inner, head, (file,))
