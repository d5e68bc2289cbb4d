"""Experts on disk: exact updates of whole models and of adapters, lazily read."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lamps_plugins._zoo._build import Zoo
from lamps_plugins.model_merging._checkpoints import (
    Checkpoint,
    natural,
    open_checkpoint,
    vocabulary_hash,
)
from lamps_plugins.model_merging._experts import LoraExpert, OftExpert, open_expert
from lamps_plugins.model_merging._refused import edit_json, edit_weights
from lamps_plugins.model_merging._sets import open_set
from lamps_plugins.text_classification._nets import quiet

from lamps.errors import ProblemError

QUERY = "encoder.layer.0.attention.self.query.weight"


def load_classifier(folder: Path) -> Any:
    with quiet():
        from transformers import AutoModelForSequenceClassification

        return AutoModelForSequenceClassification.from_pretrained(folder)


def peft_merged(base: Path, adapter: Path) -> dict[str, torch.Tensor]:
    """Weights of the encoder as peft itself folds the adapter in."""
    with quiet():
        from peft import PeftModel
        from transformers import AutoConfig, AutoModelForSequenceClassification

        config = AutoConfig.from_pretrained(adapter)
        plain = AutoModelForSequenceClassification.from_pretrained(base, config=config)
        merged = PeftModel.from_pretrained(plain, adapter).merge_and_unload()
    return {k.removeprefix("bert."): v for k, v in merged.state_dict().items()}


def matrices(base: Checkpoint) -> list[str]:
    return [n for n, i in base.encoder.items() if len(i.shape) == 2 and "layer." in n]


def test_names_of_a_headless_base_and_of_an_expert_are_the_same(zoo: Callable[[str], Zoo]) -> None:
    made = zoo("full")
    base = open_checkpoint(made.base)
    expert = open_checkpoint(made.experts["dish"])
    assert list(base.encoder) == list(expert.encoder)
    assert base.prefix == "bert"
    assert {"classifier.weight", "classifier.bias"} < set(expert.head)
    assert "bert.pooler.dense.weight" in base.head


def test_delta_of_a_whole_model_is_the_difference_of_weights(zoo: Callable[[str], Zoo]) -> None:
    made = zoo("full")
    base = open_checkpoint(made.base)
    expert = open_expert("dish", made.experts["dish"], base)
    net = load_classifier(made.experts["dish"]).state_dict()
    names = (QUERY, QUERY.replace("layer.0", "layer.1"))
    found = expert.delta(names)
    assert found.shape == (2, 32, 32)
    for name, delta in zip(names, found, strict=True):
        assert torch.equal(delta, net[f"bert.{name}"] - base.tensor(name))


@pytest.mark.parametrize("edit", ["plain", "rslora", "patterns"])
def test_lora_delta_equals_what_peft_merges(
    own: Callable[[str], dict[str, Path]], edit: str
) -> None:
    at = own("lora")
    config = at["dish"] / "adapter_config.json"
    if edit == "rslora":
        edit_json(config, use_rslora=True)
    if edit == "patterns":
        layer = "layer.1.attention.self.value"
        edit_json(config, alpha_pattern={layer: 3, "query": 5}, rank_pattern={layer: 2})
        key = f"base_model.model.bert.encoder.{layer}.lora_"

        def cut(tensors: dict[str, Any]) -> None:
            tensors[f"{key}A.weight"] = tensors[f"{key}A.weight"][:2]
            tensors[f"{key}B.weight"] = tensors[f"{key}B.weight"][:, :2]

        edit_weights(at["dish"] / "adapter_model.safetensors", cut)
    base = open_checkpoint(at["base"])
    expert = open_expert("dish", at["dish"], base)
    assert isinstance(expert, LoraExpert)
    merged = peft_merged(at["base"], at["dish"])
    names = matrices(base)
    assert set(names) == expert.moved
    for name in names:
        torch.testing.assert_close(base.tensor(name) + expert.delta((name,))[0], merged[name])
    group = tuple(n for n in names if base.encoder[n].shape == (32, 32))
    b, a, scale = expert.factors(group)
    assert b.shape == (len(group), 32, 8)
    assert a.shape == (len(group), 8, 32)
    torch.testing.assert_close(scale[:, None, None] * b @ a, expert.delta(group))
    if edit == "plain":
        assert scale.tolist() == [2.0] * len(group)
    if edit == "rslora":
        assert scale.tolist() == pytest.approx([16 / math.sqrt(8)] * len(group))


@pytest.mark.parametrize("terms", [None, 2, 3, 4, 5, 7])
def test_oft_delta_equals_what_peft_merges(
    own: Callable[[str], dict[str, Path]], terms: int | None
) -> None:
    at = own("oft")
    if terms is not None:
        edit_json(
            at["dish"] / "adapter_config.json",
            use_cayley_neumann=True,
            num_cayley_neumann_terms=terms,
        )
    base = open_checkpoint(at["base"])
    expert = open_expert("dish", at["dish"], base)
    merged = peft_merged(at["base"], at["dish"])
    for name in matrices(base):
        torch.testing.assert_close(
            base.tensor(name) + expert.delta((name,))[0], merged[name], atol=1e-5, rtol=1e-5
        )


def test_exact_oft_rotations_are_orthogonal_and_their_blocks_skew(
    zoo: Callable[[str], Zoo],
) -> None:
    made = zoo("oft")
    base = open_checkpoint(made.base)
    expert = open_expert("dish", made.experts["dish"], base)
    assert isinstance(expert, OftExpert)
    skew = expert.skew((QUERY,))
    assert skew.shape == (1, 4, 8, 8)
    assert torch.equal(skew, -skew.transpose(-1, -2))
    assert skew.abs().max() > 0
    turned = expert.rotation(QUERY)
    eye = torch.eye(8).expand(4, 8, 8)
    torch.testing.assert_close(turned @ turned.transpose(-1, -2), eye, atol=1e-5, rtol=0)


def test_sharded_checkpoint_equals_the_single_file(
    zoo: Callable[[str], Zoo], tmp_path: Path
) -> None:
    made = zoo("full")
    folder = tmp_path / "sharded"
    load_classifier(made.experts["dish"]).save_pretrained(folder, max_shard_size="40KB")
    assert (folder / "model.safetensors.index.json").is_file()
    sharded, single = open_checkpoint(folder), open_checkpoint(made.experts["dish"])
    assert len(sharded.files) > 1
    assert set(sharded.encoder) == set(single.encoder)
    for name in single.encoder:
        assert torch.equal(sharded.tensor(name), single.tensor(name))
    (folder / sharded.files[0].name).unlink()
    with pytest.raises(ProblemError, match="copy all shards"):
        open_checkpoint(folder)


def test_opening_reads_no_weight(zoo: Callable[[str], Zoo], monkeypatch: Any) -> None:
    import safetensors

    made = zoo("full")

    class Closed:
        """A file whose tensors cannot be read."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.inner = real(*args, **kwargs)

        def __enter__(self) -> Closed:
            return self

        def __exit__(self, *_: object) -> None:
            self.inner.__exit__(None, None, None)

        def keys(self) -> Any:
            return self.inner.keys()

        def get_slice(self, key: str) -> Any:
            return self.inner.get_slice(key)

    real = safetensors.safe_open
    monkeypatch.setattr(safetensors, "safe_open", Closed)
    base = open_checkpoint(made.base)
    assert open_expert("dish", made.experts["dish"], base).labels == ("salty", "sour", "sweet")


def test_half_precision_is_read_as_float32(own: Callable[[str], dict[str, Path]]) -> None:
    at = own("full")

    def halve(tensors: dict[str, Any]) -> None:
        tensors.update({k: v.bfloat16() for k, v in tensors.items()})

    for name in ("base", "dish", "game", "trip"):
        edit_weights(at[name] / "model.safetensors", halve)
    base = open_checkpoint(at["base"])
    assert base.encoder[QUERY].dtype == "BF16"
    expert = open_expert("dish", at["dish"], base)
    assert expert.delta((QUERY,)).dtype == torch.float32


def test_shared_oft_blocks_are_repeated(own: Callable[[str], dict[str, Path]]) -> None:
    at = own("oft")

    def share(tensors: dict[str, Any]) -> None:
        tensors.update({k: v[:1] for k, v in tensors.items() if "oft_R" in k})

    edit_json(at["dish"] / "adapter_config.json", block_share=True)
    edit_weights(at["dish"] / "adapter_model.safetensors", share)
    base = open_checkpoint(at["base"])
    expert = open_expert("dish", at["dish"], base)
    merged = peft_merged(at["base"], at["dish"])
    for name in matrices(base):
        torch.testing.assert_close(
            base.tensor(name) + expert.delta((name,))[0], merged[name], atol=1e-5, rtol=1e-5
        )


def test_a_vocabulary_is_the_words_and_not_the_file(
    own: Callable[[str], dict[str, Path]], tmp_path: Path
) -> None:
    at = own("full")
    file = at["base"] / "tokenizer.json"
    found = json.loads(file.read_text())
    before = vocabulary_hash(at["base"])
    file.write_text(json.dumps(found | {"truncation": None}))
    assert vocabulary_hash(at["base"]) == before
    other = tmp_path / "bert"
    other.mkdir()
    words = sorted(found["model"]["vocab"], key=found["model"]["vocab"].__getitem__)
    (other / "vocab.txt").write_text("\n".join(words))
    assert vocabulary_hash(other) == before
    assert vocabulary_hash(tmp_path) is None


def test_names_sort_by_number() -> None:
    names = [f"encoder.layer.{i}.output.dense.weight" for i in (10, 2, 0, 1)]
    assert sorted(names, key=natural) == [names[2], names[3], names[1], names[0]]


def test_order_of_experts_is_kept_and_enters_the_key(zoo: Callable[[str], Zoo]) -> None:
    made = zoo("full")
    there = open_set(made.base, made.experts)
    back = open_set(made.base, dict(reversed(made.experts.items())))
    assert [e.name for e in there.experts] == ["dish", "game", "trip"]
    assert [e.name for e in back.experts] == ["trip", "game", "dish"]
    assert there.key != back.key
    group = there.groups[0]
    assert torch.equal(there.deltas(group), back.deltas(group).flip(0))


def test_an_expert_given_twice_is_refused(own: Callable[[str], dict[str, Path]]) -> None:
    at = own("full")
    with pytest.raises(ProblemError, match="are the same folder"):
        open_set(at["base"], {"a": at["dish"], "b": at["dish"]})
    copy = at["dish"].parent / "copy"
    shutil.copytree(at["dish"], copy)
    with pytest.raises(ProblemError, match="'a' and 'b' hold the same weights"):
        open_set(at["base"], {"a": at["dish"], "b": copy})


def test_the_base_itself_is_no_expert(own: Callable[[str], dict[str, Path]]) -> None:
    at = own("full")
    base = open_checkpoint(at["base"])

    def undo(tensors: dict[str, Any]) -> None:
        for key in list(tensors):
            name = key.removeprefix("bert.")
            if name in base.encoder:
                tensors[key] = base.tensor(name)

    edit_weights(at["dish"] / "model.safetensors", undo)
    with pytest.raises(ProblemError, match="'dish' is the base itself"):
        open_set(at["base"], {"dish": at["dish"], "game": at["game"]})


def test_whole_models_and_adapters_mix_but_have_no_common_factors(
    zoo: Callable[[str], Zoo],
) -> None:
    full, lora, oft = zoo("full"), zoo("lora"), zoo("oft")
    mixed = open_set(full.base, {"dish": full.experts["dish"], "game": lora.experts["game"]})
    assert mixed.kind == "mixed"
    group = mixed.groups[0]
    assert mixed.deltas(group).shape == (2, len(group.names), *group.shape)
    with pytest.raises(ProblemError, match="'dish' is full"):
        mixed.low_rank(group)
    with pytest.raises(ProblemError, match="needs OFT experts"):
        mixed.skew(group)
    rotated = open_set(oft.base, oft.experts)
    assert rotated.skew(rotated.groups[0]).shape == (3, 2, 4, 8, 8)
    low = open_set(lora.base, lora.experts)
    found = low.low_rank(low.groups[0])
    for k, delta in enumerate(low.deltas(low.groups[0])):
        torch.testing.assert_close(found.b[k] @ found.a[k], delta)
