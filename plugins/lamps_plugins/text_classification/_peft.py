"""Adapters through peft: where they attach, what else is trained, how they are folded in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from lamps.errors import MissingExtra, ProblemError
from lamps_plugins.text_classification import _nets
from lamps_plugins.text_classification._tuned import TunedMethod

if TYPE_CHECKING:
    from torch import nn

    from lamps_plugins.text_classification._problem import TextProblem

P = TypeVar("P")

_QUERY_KEY_VALUE = (
    "query", "key", "value", "q_proj", "k_proj", "v_proj", "q_lin", "k_lin", "v_lin",
    "query_proj", "key_proj", "value_proj", "query_key_value", "c_attn", "Wqkv", "qkv_proj",
)  # fmt: skip


def linear_layers(net: nn.Module) -> list[str]:
    """Names of the linear layers inside the repeated layers of the base model."""
    from torch import nn

    heads = _nets.head_names(net)
    return [
        name
        for name, module in net.named_modules()
        if isinstance(module, nn.Linear) and f"{name}.weight" not in heads
    ]


def attention_layers(net: nn.Module, *, without: tuple[str, ...] = ()) -> list[str]:
    """Names of the query, key and value projections, less those that end in one of ``without``.

    Raises:
        ProblemError: The network names them in a way not known here.
    """
    wanted = [n for n in _QUERY_KEY_VALUE if n not in without]
    found = [n for n in linear_layers(net) if n.rsplit(".", 1)[-1] in wanted]
    if not found:
        raise ProblemError(
            f"{type(net).__name__} has no query, key or value layers of a known name; "
            "use targets='all' or another model"
        )
    return found


def second_feed_forward(net: nn.Module) -> list[str]:
    """Names of the layers that bring the feed-forward part back to the model's width."""
    ends = ("down_proj", "fc2", "lin2", "wo", "Wo")
    return [
        name
        for name in linear_layers(net)
        if name.rsplit(".", 1)[-1] in ends
        or (name.endswith("output.dense") and not name.endswith("attention.output.dense"))
    ]


class PeftMethod(TunedMethod[P]):
    """A network whose base stays frozen under an adapter of peft; the head is trained with it."""

    def config(self, net: nn.Module) -> Any:
        """The peft configuration for a network."""
        raise NotImplementedError

    def adapt(self, net: nn.Module, problem: TextProblem) -> nn.Module:
        """Add the adapter; freeze everything else but the head."""
        try:
            from peft import get_peft_model
        except ImportError as error:
            raise MissingExtra(f"method {self.name()!r}", "peft", "text") from error

        heads = {id(p) for n, p in net.named_parameters() if n in _nets.head_names(net)}
        wrapped: nn.Module = get_peft_model(net, self.config(net))
        for parameter in wrapped.parameters():
            if id(parameter) in heads:
                parameter.requires_grad_(True)
        return wrapped

    def merged(self, net: Any) -> nn.Module:
        """The adapter folded into the weights it adapts."""
        plain: nn.Module = net.merge_and_unload()
        return plain.requires_grad_(False)
