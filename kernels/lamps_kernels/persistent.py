"""A whole graph of tile tasks in one launch: each program works through a queue of its own.

A task is a row of words: what to do, which tasks must have run, and where its tiles lie in one
flat memory. A program waits until a board says that those have run, does its task and marks it:

    product     out = a b            root-mean-square norm   out = a / rms(a) * b
    gate        out = silu(a) b      sum                     out = a + b

One launch replaces one launch an operation. Bound by what the tasks read and write. Queues are
checked before anything runs, so that no program waits for a task that comes after its own wait;
on a GPU all programs must be resident at once, one a multiprocessor at most. The interpreter runs
programs one after the other, so there is one queue there.

Source: the task level of Zheng et al., DITRON, arXiv 2605.02953; words and board are our reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as nnf

from lamps_kernels._kernel import Bench, Case, Kernel, Refusal, Signature, Tolerance

try:
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ModuleNotFoundError:  # torch without triton: the twin does all the work
    triton = None

OPERATIONS = {"product": 0, "norm": 1, "gate": 2, "sum": 3}
NOTHING = -1
"""Operation of the rows that fill up a short queue."""

WORDS = 16
"""Words of a task: operation, task, two ranges of tasks to wait for (first, last + 1), for out, a
and b where they begin and how far their rows lie apart, then rows, columns and inner length."""

EPS = 1e-6
BLOCK_M, BLOCK_N, BLOCK_K = 16, 64, 32


def task(
    operation: str,
    number: int,
    waits: Sequence[tuple[int, int]],
    places: Sequence[tuple[int, int]],
    size: tuple[int, int, int],
) -> list[int]:
    """The words of a task.

    Args:
        operation: One of `OPERATIONS`.
        number: Its own number.
        waits: Up to two ranges of tasks.
        places: Offset and stride of out, a and b; the weight of a norm has stride 0.
        size: Rows (at most 16), columns (at most 64, any for a norm) and inner length.

    Example:
        >>> task("sum", 2, [(0, 2)], [(8, 4), (0, 4), (4, 4)], (1, 4, 0))
        [3, 2, 0, 2, 0, 0, 8, 4, 0, 4, 4, 4, 1, 4, 0, 0]
    """
    ranges = [*waits, (0, 0), (0, 0)][:2]
    flat = [x for pair in (*ranges, *places) for x in pair]
    return [OPERATIONS[operation], number, *flat, *size, 0]


def persistent(memory: Tensor, queues: Tensor, *, n_tasks: int) -> Tensor:
    """Run all queues; see the module.

    Args:
        memory: Operands and space for results. Shape: [L] float32.
        queues: A row of words for each step of each worker, on the CPU; rows with the operation
            `NOTHING` end a queue. Shape: [n_steps, n_workers, 16] int32.
        n_tasks: Number of tasks.

    Returns:
        The memory afterwards, as a new tensor. Shape: [L] float32.

    Raises:
        ValueError: Shapes or dtypes other than these, a task outside of the memory, or queues that
            wait for each other.

    Example:
        >>> import torch
        >>> one = task("sum", 0, [], [(4, 2), (0, 2), (2, 2)], (1, 2, 0))
        >>> queues = torch.tensor([[one]], dtype=torch.int32)
        >>> persistent(torch.tensor([1.0, 2.0, 10.0, 20.0, 0.0, 0.0]), queues, n_tasks=1)[4:]
        tensor([11., 22.])
    """
    call = persistent_triton if memory.is_cuda and triton is not None else persistent_torch
    return call(memory, queues, n_tasks=n_tasks)


def _check(memory: Tensor, queues: Tensor, n_tasks: int) -> list[list[int]]:
    """The tasks in an order in which they can run."""
    if memory.ndim != 1 or memory.dtype != torch.float32 or not memory.is_contiguous():
        raise ValueError(f"memory is {memory.dtype} {list(memory.shape)}; expected float32 [L]")
    if queues.ndim != 3 or queues.shape[2] != WORDS or queues.dtype != torch.int32:
        raise ValueError(
            f"queues are {queues.dtype} {list(queues.shape)}; expected int32 [n_steps, "
            f"n_workers, {WORDS}]"
        )
    if queues.is_cuda:
        raise ValueError("queues are on the GPU; expected them on the CPU, where they are checked")
    workers = [
        [row for row in rows if row[0] != NOTHING] for rows in queues.transpose(0, 1).tolist()
    ]
    numbers = sorted(row[1] for rows in workers for row in rows)
    if numbers != list(range(n_tasks)):
        raise ValueError(
            f"queues hold {len(numbers)} tasks; expected 0 to {n_tasks - 1}, each once"
        )
    for rows in workers:
        for row in rows:
            _check_task(row, len(memory), n_tasks)
    return _in_order(workers, n_tasks)


def _check_task(row: list[int], length: int, n_tasks: int) -> None:
    operation, number, m, n, k = row[0], row[1], *row[12:15]
    if operation not in OPERATIONS.values():
        raise ValueError(f"task {number} has operation {operation}; expected 0 to 3")
    if not 1 <= m <= BLOCK_M or n < 1 or (operation != 1 and n > BLOCK_N):
        raise ValueError(f"task {number} has {m} x {n}; expected at most {BLOCK_M} x {BLOCK_N}")
    heights = {"product": (m, m, k), "norm": (m, m, 1)}
    widths = {"product": (n, k, n)}
    name = next(word for word, code in OPERATIONS.items() if code == operation)
    for i, (height, width) in enumerate(
        zip(heights.get(name, (m, m, m)), widths.get(name, (n, n, n)), strict=True)
    ):
        start, stride = row[6 + 2 * i], row[7 + 2 * i]
        if start < 0 or stride < 0 or start + (height - 1) * stride + width > length:
            raise ValueError(f"task {number} reaches outside of the memory of {length} elements")
    if not all(0 <= row[i] <= row[i + 1] <= n_tasks for i in (2, 4)):
        raise ValueError(f"task {number} waits for {row[2:6]}; there are {n_tasks} tasks")


def _in_order(workers: list[list[list[int]]], n_tasks: int) -> list[list[int]]:
    done, at = [False] * n_tasks, [0] * len(workers)
    order: list[list[int]] = []
    while len(order) < n_tasks:
        moved = False
        for worker, rows in enumerate(workers):
            while at[worker] < len(rows):
                row = rows[at[worker]]
                if not all(done[row[2] : row[3]]) or not all(done[row[4] : row[5]]):
                    break
                done[row[1]] = moved = True
                at[worker] += 1
                order.append(row)
        if not moved:
            raise ValueError(f"{n_tasks - len(order)} tasks wait for each other in these queues")
    return order


def persistent_torch(memory: Tensor, queues: Tensor, *, n_tasks: int) -> Tensor:
    """`persistent` in torch operations, a task at a time, on any device."""
    return _run(memory.clone(), _check(memory, queues, n_tasks))


def persistent_float64(memory: Tensor, queues: Tensor, *, n_tasks: int) -> Tensor:
    """The same in float64."""
    return _run(memory.double(), _check(memory, queues, n_tasks))


def _run(memory: Tensor, order: list[list[int]]) -> Tensor:
    for row in order:
        m, n, k = row[12:15]

        def part(i: int, height: int, width: int, row: list[int] = row) -> Tensor:
            return memory.as_strided((height, width), (row[7 + 2 * i], 1), row[6 + 2 * i])

        out = part(0, m, n)
        if row[0] == OPERATIONS["product"]:
            out.copy_(part(1, m, k) @ part(2, k, n))
        elif row[0] == OPERATIONS["norm"]:
            a = part(1, m, n)
            out.copy_(a * torch.rsqrt(a.square().mean(1, keepdim=True) + EPS) * part(2, 1, n))
        elif row[0] == OPERATIONS["gate"]:
            out.copy_(nnf.silu(part(1, m, n)) * part(2, m, n))
        else:
            out.copy_(part(1, m, n) + part(2, m, n))
    return memory


def persistent_triton(memory: Tensor, queues: Tensor, *, n_tasks: int) -> Tensor:
    """`persistent` as one Triton launch; with one queue under ``TRITON_INTERPRET=1``."""
    _check(memory, queues, n_tasks)
    if triton is None:
        raise ValueError("the kernel needs triton, which is not installed; the twin does not")
    n_steps, n_workers = queues.shape[:2]
    if not memory.is_cuda and n_workers > 1:
        raise ValueError(f"{n_workers} queues in the interpreter, which runs them one by one: 1")
    if memory.is_cuda:
        resident = torch.cuda.get_device_properties(memory.device).multi_processor_count
        if n_workers > resident:
            raise ValueError(f"{n_workers} queues; only {resident} programs are resident at once")
    out = memory.clone()
    board = torch.zeros(max(n_tasks, 1), dtype=torch.int32, device=memory.device)
    if n_tasks:
        _kernel[(n_workers,)](
            out, queues.to(memory.device).contiguous(), board, n_steps, n_workers, EPS,
            WORDS=WORDS, BM=BLOCK_M, BN=BLOCK_N, BK=BLOCK_K,
        )  # fmt: skip
    return out


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(  # type: ignore[no-untyped-def]
        memory, queues, board, n_steps, n_workers, eps,
        WORDS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    ):  # fmt: skip
        worker = tl.program_id(0)
        row, column, inner = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :], tl.arange(0, BK)
        for step in range(n_steps):
            words = queues + (step * n_workers + worker) * WORDS
            operation = tl.load(words)
            if operation >= 0:
                for which in range(2):
                    first = tl.load(words + 2 + 2 * which)
                    for needed in range(first, tl.load(words + 3 + 2 * which)):
                        while tl.atomic_add(board + needed, 0, sem="acquire") == 0:
                            pass
                tl.debug_barrier()
                out = memory + tl.load(words + 6) + row * tl.load(words + 7)
                a = memory + tl.load(words + 8) + row * tl.load(words + 9)
                b, stride_b = memory + tl.load(words + 10), tl.load(words + 11)
                m, n, k = tl.load(words + 12), tl.load(words + 13), tl.load(words + 14)
                inside = (row < m) & (column < n)
                if operation == 0:
                    total = tl.zeros((BM, BN), tl.float32)
                    for start in range(0, k, BK):
                        at = start + inner
                        left = tl.load(
                            a + at[None, :], mask=(row < m) & (at[None, :] < k), other=0.0
                        )
                        right = tl.load(
                            b + at[:, None] * stride_b + column,
                            mask=(at[:, None] < k) & (column < n), other=0.0,
                        )  # fmt: skip
                        total = tl.dot(left, right, total, input_precision="ieee")
                    tl.store(out + column, total, mask=inside)
                elif operation == 1:
                    square = tl.zeros((BM, BN), tl.float32)
                    for start in range(0, n, BN):
                        there = (row < m) & (start + column < n)
                        v = tl.load(a + start + column, mask=there, other=0.0)
                        square += v * v
                    scale = 1.0 / tl.sqrt(tl.sum(square, 1) / n + eps)
                    for start in range(0, n, BN):
                        there = (row < m) & (start + column < n)
                        v = tl.load(a + start + column, mask=there, other=0.0)
                        w = tl.load(b + start + column, mask=start + column < n, other=0.0)
                        tl.store(out + start + column, v * scale[:, None] * w, mask=there)
                else:
                    v = tl.load(a + column, mask=inside, other=0.0)
                    w = tl.load(b + row * stride_b + column, mask=inside, other=0.0)
                    v = tl.where(operation == 2, v / (1.0 + tl.exp(-v)) * w, v + w)
                    tl.store(out + column, v, mask=inside)
                tl.debug_barrier()
                tl.atomic_xchg(board + tl.load(words + 1), 1, sem="release")


def feed_forward(
    rows: int, d: int, f: int, *, workers: int = 1, generator: torch.Generator | None = None
) -> dict[str, Any]:
    """Memory and queues of a feed-forward layer: norm, gate and up, swiglu, down, residual sum.

    Args:
        rows: At most 16.
        d: Width of the layer.
        f: Width of gate and up.
        workers: Queues; tasks are dealt in turn.
        generator: Source of the numbers.

    Returns:
        Arguments of `persistent`; the result is the last ``rows * d`` elements.
    """
    sizes = {
        "x": rows * d, "weight": d, "gate": d * f, "up": d * f, "down": f * d, "normed": rows * d,
        "g": rows * f, "u": rows * f, "act": rows * f, "made": rows * d, "out": rows * d,
    }  # fmt: skip
    starts, length = {}, 0
    for name, size in sizes.items():
        starts[name], length = length, length + size
    memory = torch.randn(length, generator=generator)
    tasks: list[list[int]] = []

    def add(
        operation: str, waits: list[tuple[int, int]], names: str, strides: tuple[int, int, int],
        width: int, inner: int = 0, whole_a: bool = False,
    ) -> tuple[int, int]:  # fmt: skip
        first = len(tasks)
        step = width if operation == "norm" else BLOCK_N
        for at in range(0, width, step):
            moves = (at, 0 if whole_a else at, at)
            places = [
                (starts[name] + move, stride)
                for name, move, stride in zip(names.split(), moves, strides, strict=True)
            ]
            size = (rows, min(step, width - at), inner)
            tasks.append(task(operation, len(tasks), waits, places, size))
        return first, len(tasks)

    norm = add("norm", [], "normed x weight", (d, d, 0), d)
    gate = add("product", [norm], "g normed gate", (f, d, f), f, d, whole_a=True)
    up = add("product", [norm], "u normed up", (f, d, f), f, d, whole_a=True)
    act = add("gate", [gate, up], "act g u", (f, f, f), f)
    down = add("product", [act], "made act down", (d, f, d), d, f, whole_a=True)
    add("sum", [down], "out x made", (d, d, d), d)
    n_tasks = len(tasks)
    while len(tasks) % workers:
        tasks.append([NOTHING] + [0] * (WORDS - 1))
    queues = torch.tensor(tasks, dtype=torch.int32).view(-1, workers, WORDS)
    return {"memory": memory, "queues": queues, "n_tasks": n_tasks}


def _drawn(rows: int, d: int, f: int) -> Callable[..., dict[str, Any]]:
    def inputs(
        device: torch.device, dtype: torch.dtype, generator: torch.Generator
    ) -> dict[str, Any]:
        made = feed_forward(rows, d, f, generator=generator)
        return made | {"memory": made["memory"].to(device)}

    return inputs


def _bad(place: int, value: int) -> Callable[[], dict[str, Any]]:
    def inputs() -> dict[str, Any]:
        made = feed_forward(2, 16, 16)
        made["queues"][3, 0, place] = value
        return made

    return inputs


def _bench(device: torch.device, dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
    workers = 64 if device.type == "cuda" else 1
    made = feed_forward(8, 1024, 4096, workers=workers)
    made["memory"] = made["memory"].to(device)
    return {
        "torch": lambda: persistent_torch(**made),
        "triton": lambda: persistent_triton(**made),
    }


KERNEL = Kernel(
    name="persistent",
    torch=persistent_torch,
    triton=persistent_triton,
    reference=persistent_float64,
    cases=(
        Case(name="even", inputs=_drawn(16, 64, 64)),
        Case(name="ragged", inputs=_drawn(3, 70, 90)),
    ),
    refusals=(
        Refusal(name="operation", inputs=_bad(0, 7), match="has operation 7"),
        Refusal(name="twice", inputs=_bad(1, 0), match="each once"),
        Refusal(name="outside", inputs=_bad(6, 1 << 20), match="outside of the memory"),
        Refusal(name="rows", inputs=_bad(12, 17), match="expected at most 16 x 64"),
        Refusal(name="unknown-wait", inputs=_bad(3, 99), match="there are 6 tasks"),
        Refusal(name="cycle", inputs=_bad(3, 6), match="wait for each other"),
    ),
    tolerances={torch.float32: Tolerance(absolute=1e-5, relative=2e-6)},
    signatures=() if triton is None else (
        Signature(
            function=_kernel,
            types={
                "memory": "*fp32", "queues": "*i32", "board": "*i32", "n_steps": "i32",
                "n_workers": "i32", "eps": "fp32",
                **dict.fromkeys(("WORDS", "BM", "BN", "BK"), "constexpr"),
            },
            constants={"WORDS": WORDS, "BM": BLOCK_M, "BN": BLOCK_N, "BK": BLOCK_K},
        ),
    ),
    benches=(
        Bench(
            size="feed-forward B=8 D=1024 F=4096", prepare=_bench, flops=2 * 3 * 8 * 1024 * 4096,
            bytes=4 * 3 * 1024 * 4096, dtype=torch.float32,
        ),
    ),
)  # fmt: skip
