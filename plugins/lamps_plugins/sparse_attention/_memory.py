"""The memory that a computation needs beside what it is given and what it returns."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["extra_bytes"]


def extra_bytes(call: Callable[[], Any]) -> int:
    """Bytes of the tensors that a call holds at its peak, without what it returns.

    Counted from the storages of all results of torch operations while they live, so the number
    does not depend on the machine's allocator. What an operation takes inside and frees before it
    returns is not seen.

    Args:
        call: Returns a tensor, or a tuple of such and other things.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_iter

    # Storages get numbers of their own, because addresses are used again.
    number: dict[int, int] = {}
    users: dict[int, int] = {}
    events: list[tuple[int, int]] = []  # storage, bytes that came or went

    def drop(place: int, bytes_: int) -> None:
        users[place] -= 1
        if not users[place]:
            events.append((number.pop(place), -bytes_))

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            given = {_place(x) for x in tree_iter((args, kwargs)) if isinstance(x, torch.Tensor)}
            found = func(*args, **(kwargs or {}))
            for x in tree_iter(found):
                if not isinstance(x, torch.Tensor):
                    continue
                place, bytes_ = _place(x), x.untyped_storage().nbytes()
                if place not in number:
                    if place in given:
                        continue  # a view of what the call was given
                    number[place], users[place] = len(events), 0
                    events.append((number[place], bytes_))
                users[place] += 1
                weakref.finalize(x, drop, place, bytes_)
            return found

    with Watch():  # type: ignore[no-untyped-call]
        result = call()
    tensors = [x for x in tree_iter(result) if isinstance(x, torch.Tensor)]
    returned = {number[_place(x)] for x in tensors if _place(x) in number}
    held = itertools.accumulate(bytes_ for n, bytes_ in events if n not in returned)
    return max(held, default=0)


def _place(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()
