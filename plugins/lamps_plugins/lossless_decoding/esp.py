"""ESP: k mask tokens behind every node of a tree, whose logits tell the next tree.

Paper: Goel, Gagrani, Lee, Lott, Efficient Training-Free Multi-Token Prediction via Embedding-Space
Probing, ICML 2026, arXiv 2603.17942.

    m = mean of the prompt's embeddings,    m <- m + lambda (e_new - m) for each emitted token  (1)
    rows of a call: root, nodes, and behind each of them k masks: BC = (k + 1) (1 + sum_i K_i)  (2)
    p_i = softmax of the i-th mask of the last accepted node: the token at depth i of the next
    tree; P(node) = P(parent) p_i(token)                                                        (3)

``tree="static"`` gives the best node of depth i its K_(i+1) children, ``"dynamic"`` takes the
(BC / (k + 1)) - 1 nodes of the largest P that are closed under ancestors. Nodes never see masks,
so masks change nothing in what is verified. Ours: ``p_min`` and ``ngrams``, places of the tree
that go to what followed earlier in the text. Oracle: a model that continues by a fixed rule and
answers masks by the same rule emits k + 1 tokens a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamps import space as hp
from lamps.errors import ConfigError
from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.lossless_decoding._decoder import FAMILY, Decoder
from lamps_plugins.lossless_decoding._drafter import Draft, Drafter, Outcome
from lamps_plugins.lossless_decoding._masks import INITS, Init, MaskTokens
from lamps_plugins.lossless_decoding._ngrams import SuffixIndex
from lamps_plugins.lossless_decoding._tree import (
    Options,
    Tree,
    best_first,
    static_shape,
    top1_expansion,
)

if TYPE_CHECKING:
    from torch import Tensor

    from lamps_plugins.lossless_decoding._lm import FrozenLm
    from lamps_plugins.lossless_decoding._problem import DecodingProblem
    from lamps_plugins.lossless_decoding._sampling import Sampler

_LONGEST_ENDING = 3  # of the text, for hybrid children


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Hyperparameters of ESP."""

    k: int = hp.choice(1, (1, 2, 3), doc="Masks behind each row, tokens ahead; eq. (2).")
    rows: int = hp.choice(
        8, (4, 6, 8, 12, 20, 30, 60), doc="BC, rows of a call; eq. (2). At least 2 (k + 1)."
    )
    tree: str = hp.choice(
        "dynamic", ("static", "dynamic"), doc="Fixed shape, or the likeliest nodes; eq. (3)."
    )
    rate: float = hp.choice(
        0.1, (0.0, 0.05, 0.1, 0.3), doc="lambda, how fast masks follow the text; eq. (1)."
    )
    init: str = hp.choice("mean", INITS, doc="What masks are at the prompt's end; eq. (1).")
    p_min: float = hp.choice(
        0.0, (0.0, 1e-3, 1e-2), doc="Paths less likely than this are left out; one stays."
    )
    ngrams: int = hp.choice(
        0, (0, 1, 2), doc="Children of the root that come from earlier in the text."
    )
    shape: str = hp.fixed("", doc="Static tree of one's own, such as 7-5-3; empty for a default.")


def check_budget(k: int, rows: int) -> None:
    """Refuse budgets that hold no node.

    Raises:
        ConfigError: k is below 1, or the rows do not hold the root, one node and their masks.
    """
    if k < 1:
        raise ConfigError(f"k is {k}, expected 1 mask or more")
    if rows < 2 * (k + 1):
        raise ConfigError(
            f"rows is {rows}, expected at least {2 * (k + 1)}: root and one node with {k} masks "
            "each; give more rows or fewer masks"
        )


def parse_shape(shape: str, k: int, rows: int) -> tuple[int, ...]:
    """Children by depth of a static tree.

    Raises:
        ConfigError: It is no list of positive numbers, or deeper than k, or larger than the rows.
    """
    nodes = rows // (k + 1) - 1
    if not shape:
        return static_shape(k, nodes)
    try:
        counts = tuple(int(word) for word in shape.split("-"))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1 or len(counts) > k or sum(counts) > nodes:
        raise ConfigError(
            f"shape {shape!r}, expected up to {k} positive numbers such as 7-5-3 with a sum of "
            f"at most {nodes} (rows / (k + 1) - 1)"
        )
    return counts


class EspDrafter(Drafter):
    """One text's masks, and the tree that they say.

    Args:
        k: Masks behind each row.
        rows: BC.
        shape: Children by depth of a static tree; None for a dynamic one.
        init: What masks are at first.
        rate: lambda.
        p_min: Smallest probability of a path.
        ngrams: Children of the root from earlier in the text.
        seed: Of masks that are drawn.

    Raises:
        ConfigError: A value lies outside its range.
    """

    def __init__(
        self, *, k: int = 1, rows: int = 8, shape: tuple[int, ...] | None = None,
        init: Init = "mean", rate: float = 0.1, p_min: float = 0.0, ngrams: int = 0, seed: int = 0,
    ) -> None:  # fmt: skip
        check_budget(k, rows)
        if not 0.0 <= rate <= 1.0:
            raise ConfigError(f"rate (lambda) is {rate}, expected a value in [0, 1]")
        self.k, self.nodes, self.shape = k, rows // (k + 1) - 1, shape
        self.init, self.rate, self.p_min = init, rate, p_min
        self.ngrams, self.seed = ngrams, seed
        self.reach = 2 * k

    def begin(self, lm: FrozenLm, prompt: Sequence[int], sampler: Sampler) -> Draft:
        """Masks behind the prompt's last token."""
        self._masks = MaskTokens(
            lm, prompt, k=self.k, init=self.init, rate=self.rate, seed=self.seed
        )
        self._index = SuffixIndex(_LONGEST_ENDING)
        self._index.extend(prompt if self.ngrams else ())
        return self._with_masks(Tree([], []))

    def _with_masks(self, tree: Tree) -> Draft:
        n = len(tree.tokens)
        parents = []
        for node in range(n + 1):
            first = n + 1 + node * self.k
            parents += [node, *range(first, first + self.k - 1)]
        probes = self._masks.vectors.repeat(n + 1, 1)
        return Draft(tree.tokens, tree.parents, probes, parents)

    def observe(self, outcome: Outcome) -> None:
        """Read the masks of the last accepted node, and let them follow the text."""
        first = len(outcome.draft.tokens) + 1 + outcome.last * self.k
        self._logits: Tensor = outcome.probe_logits(range(first, first + self.k))
        self._masks.follow(outcome.emitted)
        self._root = outcome.emitted[-1]
        if self.ngrams:
            self._index.extend(outcome.emitted)

    def propose(self) -> Draft:
        """The tree that the masks say, with new masks behind each node."""
        levels = self._levels()
        given = [tail[0] for tail in self._index.followers(1, self.ngrams)] if self.ngrams else ()
        if self.shape is not None:
            tree = top1_expansion(
                self.shape, levels, root=self._root, p_min=self.p_min, given=given
            )
        else:
            tree = best_first(
                self.nodes, lambda path: levels[len(path)], depth=self.k, p_min=self.p_min,
                root=self._root, given=given,
            )  # fmt: skip
        return self._with_masks(tree)

    def _levels(self) -> list[Options]:
        """Likeliest tokens of each depth; two more than fit, for those that are left out."""
        count = min(self.nodes + 2 + self.ngrams, self._logits.shape[-1])
        best = self._logits.float().softmax(-1).topk(count)
        return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


class Esp(Decoder[Params]):
    """Masks in embedding space, read and verified in one pass."""

    spec = MethodSpec(
        family=FAMILY,
        summary="mask tokens of mean embedding foresee a token tree that the same pass verifies",
        paper=Paper(
            title="Efficient Training-Free Multi-Token Prediction via Embedding-Space Probing",
            arxiv="2603.17942",
            venue="ICML 2026",
        ),
        tags=Tags(data_free=True),
    )

    def notes(
        self, problem: DecodingProblem, prompt: Sequence[int], tokens: Sequence[int]
    ) -> dict[str, tuple[float, float]]:
        """How often masks foresee the text, by teacher forcing on the model's own text."""
        from lamps_plugins.lossless_decoding._teacher import mask_hits

        p = self.params
        return mask_hits(
            problem.lm(), prompt, tokens, k=p.k, init=p.init, rate=p.rate,  # type: ignore[arg-type]
            blank=problem.is_blank,
        )  # fmt: skip

    def drafter(self, draft: FrozenLm | None = None) -> EspDrafter:
        """See `Decoder.drafter`."""
        p = self.params
        check_budget(p.k, p.rows)
        shape = parse_shape(p.shape, p.k, p.rows) if p.tree == "static" or p.shape else None
        return EspDrafter(
            k=p.k, rows=p.rows, shape=shape, init=p.init, rate=p.rate,  # type: ignore[arg-type]
            p_min=p.p_min, ngrams=p.ngrams,
        )  # fmt: skip
