"""Weights of the learned policy on disk, and what they say without torch.

A file is safetensors; its metadata state the version of the features, the training (seed, steps,
hashes of the tables), the bounds of the features that were seen, and the stop rule. The forward
pass here is NumPy, so that a search need not load torch for ten thousand weights; a test holds
it to `lamps.policy.network`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamps.errors import ConfigError
from lamps.policy.features import FEATURE_VERSION, TRIAL_FEATURES, Array, Features

REGRET_LEVELS = (0.005, 0.01, 0.02, 0.05)
"""The last head gives the chance that more than this share of the optimum is missing."""

PRIOR = {"cost_to_end": -10.0, "started": 0.5, "volume_per_cost": 0.0}
"""Features of a trial that its score is linear in, and the weights that training begins with."""
_PRIOR_COLUMNS = [TRIAL_FEATURES.index(name) for name in PRIOR]

SHIPPED = Path(__file__).with_name("lamps.safetensors")


@dataclass(frozen=True, slots=True)
class Weights:
    """A trained network.

    Args:
        tensors: By name, float32.
        metadata: What the file says about itself; see `save`.
    """

    tensors: Mapping[str, Array]
    metadata: Mapping[str, Any]

    @property
    def sha256(self) -> str:
        """Hash of the numbers."""
        h = hashlib.sha256()
        for name in sorted(self.tensors):
            h.update(name.encode())
            h.update(np.ascontiguousarray(self.tensors[name]).tobytes())
        return h.hexdigest()

    def forward(
        self, inputs: Features, present: NDArray[np.bool_], mask: NDArray[np.bool_]
    ) -> tuple[Array, Array]:
        """Scores of trials, and the chance that much is missing.

        Args:
            inputs: Of ``B`` pools of ``n`` trials.
            present: [B, n] bool.
            mask: [B, n] bool, what may advance.

        Returns:
            [B, n] scores, -inf outside the mask; [B, 4] probabilities, see `REGRET_LEVELS`.
        """
        f, m, b, n = inputs.objectives.shape
        x = self._relu("objective.0", inputs.objectives.reshape(f, -1).T).reshape(m, b * n, -1)
        own = inputs.trials.reshape(len(inputs.trials), -1).T
        h = np.concatenate([x.mean(axis=0), x.max(axis=0), own], axis=1)
        h = self._relu("trial.2", self._relu("trial.0", h)).reshape(b, n, -1)
        there = present[..., None].astype(np.float32)
        count = np.maximum(there.sum(axis=1), 1)
        context = self._relu(
            "context.0", np.concatenate([*_pooled(h, there, count), inputs.pool.T], axis=1)
        )
        h = np.maximum(
            self._linear("trial_in_context", h)
            + self._linear("context_to_trial", context)[:, None],
            0,
        )
        context = self._relu(
            "context_again.0", np.concatenate([*_pooled(h, there, count), context], axis=1)
        )
        hidden = np.maximum(
            self._linear("score_trial", h) + self._linear("score_context", context)[:, None], 0
        )
        scores = self._linear("score", hidden)[..., 0]
        scores += (own[:, _PRIOR_COLUMNS] @ self.tensors["prior.weight"][0]).reshape(b, n)
        missing = 1 / (1 + np.exp(-np.clip(self._linear("regret", context), -30, 30)))
        return np.where(mask, scores, -np.inf).astype(np.float32), missing.astype(np.float32)

    def _linear(self, name: str, x: Array) -> Array:
        out: Array = x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]
        return out

    def _relu(self, name: str, x: Array) -> Array:
        return np.maximum(self._linear(name, x), 0)


def _pooled(h: Array, there: Array, count: Array) -> tuple[Array, Array]:
    h = h * there
    return h.sum(axis=1) / count, h.max(axis=1)


def save(path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, Any]) -> None:
    """Write weights to a temporary name and rename.

    Args:
        path: Where to.
        tensors: By name.
        metadata: JSON values; ``features`` (version) is added.
    """
    from safetensors.numpy import save as packed

    text = {"lamps": json.dumps({**metadata, "features": FEATURE_VERSION}, sort_keys=True)}
    partial = path.with_name(path.name + ".part")
    # Through bytes, because safetensors' own writer makes files that only their owner may read.
    content = packed({k: np.ascontiguousarray(v) for k, v in tensors.items()}, metadata=text)
    partial.write_bytes(content)
    partial.replace(path)


def load(path: Path) -> Weights:
    """Read weights.

    Raises:
        ConfigError: There is no such file, it is damaged, or it was trained on features of
            another version.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ConfigError(f"no policy weights at {path}; train some with: lamps policy train")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {}).get("lamps", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        raise ConfigError(f"{path} is not a file of policy weights: {error}") from error
    version = metadata.get("features")
    if version != FEATURE_VERSION:
        raise ConfigError(
            f"{path} was trained on features of version {version}, this lamps computes version "
            f"{FEATURE_VERSION}; train anew with: lamps policy train"
        )
    return Weights(tensors, metadata)
