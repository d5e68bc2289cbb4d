"""Overlap, order, schedule and tuning, each against its plain form, and signals against none.

Paper: Zheng et al., DITRON, arXiv 2605.02953: tiles, chunks and tasks that are planned together
beat collectives and products one after the other. Its figures are of GPUs with fast links. Here
links are simulated so that sending takes as long as computing, and what is claimed is a direction.
Claims that need a GPU are measured where there is one; gains over vendor libraries between several
GPUs or machines cannot be measured on one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from lamps.errors import MethodFailed, ProblemError
from lamps.replication import Ask, Claim, Measurement, Profile, Replication
from lamps.types import digest
from lamps_plugins.distributed_tensor_kernels._job import Job
from lamps_plugins.distributed_tensor_kernels._launch import close_group, group_for
from lamps_plugins.distributed_tensor_kernels._mesh import Conditions
from lamps_plugins.distributed_tensor_kernels._operators import operator_class
from lamps_plugins.distributed_tensor_kernels._operators.decode_step import step_graph
from lamps_plugins.distributed_tensor_kernels._plan import Plan
from lamps_plugins.distributed_tensor_kernels._replications import _timing, _tuner
from lamps_plugins.distributed_tensor_kernels._transports import Link

MATRICES = ("ag_gemm", "gemm_rs")
CHUNKS = (4, 8)
SIDE: Mapping[Profile, int] = {"quick": 1024, "full": 1536}
ROUNDS: Mapping[Profile, int] = {"quick": 4, "full": 8}
SAMPLES: Mapping[Profile, int] = {"quick": 16, "full": 48}
SHARE = 0.3
SEQ = Plan(block_m=64, block_n=512)
STEP = {"layers": 2, "b": 4, "d": 1024, "h": 16, "hkv": 8, "f": 4096, "s": 4096}
STEP_S = 1.0
"""Seconds that all tasks of a step sleep together."""


class DitronReplication(Replication):
    """Pairs of plans on two ranks; simulated links and cores are named in each quantity."""

    claims = (
        Claim(
            id="C1",
            statement="Sending in four or eight pieces while computing hides most of a slow link.",
            quantity="latency on a simulated link, split / sequential, t_comm = t_gemm",
            compare="geometric", direction="<=", threshold=0.75, source="ours",
        ),
        Claim(
            id="C1b",
            statement="Cutting, order and repetition change no bit of the answer.",
            quantity="share of plans with the bits of the sequential one",
            compare="boolean", direction=">=", threshold=1.0, source="ours", certain=False,
        ),
        Claim(
            id="C2",
            statement="Beginning where nobody is waited for beats the order of ranks.",
            quantity="latency on a simulated link, swizzle rank / none, 4 pieces",
            compare="geometric", direction="<=", threshold=0.9, source="ours",
        ),
        Claim(
            id="C3",
            statement="List scheduling a decoding step is no slower than dealing its tasks.",
            quantity="makespan on two simulated cores, list / round-robin",
            compare="geometric", direction="<=", threshold=1.0, source="ours",
        ),
        Claim(
            id="C3b",
            statement="Two workers never take longer than all tasks after each other.",
            quantity="makespan on two simulated cores, two workers / one",
            compare="geometric", direction="<=", threshold=1.05, source="ours",
        ),
        Claim(
            id="C4",
            statement="A search finds a plan near the best in a third of the time of timing all.",
            quantity="latency, found with 30 % of the time / best of all plans",
            compare="geometric", direction="<=", threshold=1.05, source="ours",
        ),
        Claim(
            id="C5",
            statement="Signals matter: without waiting, a rank that is late is not heard.",
            quantity="share of operators whose answer is then wrong",
            compare="boolean", direction=">=", threshold=1.0, source="ours", certain=False,
        ),
        Claim(
            id="N1",
            statement="Pieces are as good where the link takes no time.",
            quantity="latency on a simulated link of 1 TB/s, split / sequential",
            compare="geometric", direction="<=", threshold=0.75, source="ours", control=True,
        ),
        Claim(
            id="N3",
            statement="Two workers gain as much where every operation is one tile.",
            quantity="makespan on two simulated cores, two workers / one, one tile an operation",
            compare="geometric", direction="<=", threshold=0.75, source="ours", control=True,
        ),
        Claim(
            id="N4",
            statement="Any plan is near the best.",
            quantity="latency, median plan / best of all plans",
            compare="geometric", direction="<=", threshold=1.05, source="ours", control=True,
        ),
        Claim(
            id="N5",
            statement="A rank that is late makes answers wrong although it is waited for.",
            quantity="share of operators whose answer is then wrong",
            compare="boolean", direction=">=", threshold=0.5, source="ours", certain=False,
            control=True,
        ),
        Claim(
            id="G1",
            statement="The product by tiles reaches four fifths of the library's.",
            quantity="time, torch.matmul / gemm, bfloat16, sides 4096 and 8192",
            compare="geometric", direction=">=", threshold=0.8, source="ours", needs="gpu",
        ),
        Claim(
            id="G2",
            statement="Split decoding takes at most 1.2 times the time of SDPA.",
            quantity="time, flash_decode and flash_combine / SDPA, 32768 keys, bfloat16",
            compare="geometric", direction="<=", threshold=1.2, source="ours", needs="gpu",
        ),
        Claim(
            id="G3",
            statement="Copies between virtual ranks of one GPU are hidden behind products.",
            quantity="latency over streams, split / sequential",
            compare="geometric", direction="<=", threshold=0.85, source="ours", needs="gpu",
        ),
    )  # fmt: skip

    def seeds(self, profile: Profile) -> tuple[int, ...]:
        """Times are noisy, so three seeds in both profiles."""
        return (0, 1, 2)

    def fingerprint(self, profile: Profile) -> str:
        """Hash of the settings."""
        sizes = [SIDE[profile], ROUNDS[profile], SAMPLES[profile], SHARE, STEP_S]
        return digest([sizes, SEQ.as_json(), STEP, list(CHUNKS)])

    def measure(self, ask: Ask) -> Iterator[Measurement]:
        """Pairs of one seed."""
        for operator in MATRICES:
            yield from _overlap(ask, operator)
        yield from _schedules(ask)
        yield from _signals(ask)
        yield from _tuning(ask)
        yield from _on_gpu(ask)
        close_group()


def _overlap(ask: Ask, operator: str) -> Iterator[Measurement]:
    """C1, C1b, C2 and N1 for an operator."""
    pieces = any(ask.wants("C1", unit=f"{operator}, {c}") for c in CHUNKS)
    if not (pieces or ask.wants("C1b", "C2", "N1", unit=operator)):
        return
    side = SIDE[ask.profile]
    shape = {"m": side, "n": side, "k": side}
    plans = {"seq": SEQ}
    plans |= {f"{c}": dataclasses.replace(SEQ, mode="split", chunks=c) for c in CHUNKS}
    plans["none"] = dataclasses.replace(plans["4"], swizzle="none")
    link = _timing.even_link(operator, shape, SEQ, ask.seed)
    ask.say(f"seed {ask.seed}: {operator} on a simulated link of {link.beta_mb_s:.0f} MB/s")
    rounds = ROUNDS[ask.profile]
    with group_for(2, "simlink", wait_s=60.0, link=link) as group:
        found = _timing.medians(group, operator, shape, plans, ask.seed, rounds=rounds)
    about: dict[str, Any] = {"simulated_link": True, "link_beta_mb_s": link.beta_mb_s}
    about |= {f"{name}_ms": t for name, (t, _) in found.items()}
    for c in CHUNKS:
        yield ask.measured("C1", f"{operator}, {c}", found[str(c)][0], found["seq"][0], **about)
    yield ask.measured("C2", operator, found["4"][0], found["none"][0], **about)
    same = sum(bits == found["seq"][1] for _, bits in found.values()) / len(found)
    yield ask.measured("C1b", operator, same)
    pair = {name: plans[name] for name in ("seq", "4")}
    with group_for(2, "simlink", wait_s=60.0, link=_timing.FAST) as group:
        fast = _timing.medians(group, operator, shape, pair, ask.seed, rounds=rounds // 2)
    yield ask.measured("N1", operator, fast["4"][0], fast["seq"][0], simulated_link=True)


def _schedules(ask: Ask) -> Iterator[Measurement]:
    """C3, C3b and N3 by what threads take whose tasks sleep."""
    rules = {"one": (1, "rr"), "rr": (2, "rr"), "zigzag": (2, "zigzag"), "list": (2, "list")}
    for block in (128, 256, 512):
        unit = f"tiles of {block}"
        if not ask.wants("C3", "C3b", unit=unit):
            continue
        graph = step_graph(STEP, block, STEP["h"], STEP["hkv"], STEP["f"])
        ask.say(f"seed {ask.seed}: schedules of {graph.n_nodes} tasks")
        found = _timing.makespans(graph, rules, STEP_S)
        yield ask.measured("C3", unit, found["list"], found["rr"], simulated_cores=True)
        worst = max(found["rr"], found["list"])
        yield ask.measured("C3b", unit, worst, found["one"], simulated_cores=True)
    if ask.wants("N3", unit="whole operations"):
        whole = dict(STEP, hkv=1)  # attention is one task too
        graph = step_graph(whole, 4096 * 4, STEP["h"], 1, STEP["f"])
        found = _timing.makespans(graph, {k: rules[k] for k in ("one", "list")}, STEP_S)
        yield ask.measured("N3", "whole operations", found["list"], found["one"])


def _signals(ask: Ask) -> Iterator[Measurement]:
    """C5 and N5: a rank that is 200 ms late, with and without waiting for it."""
    for operator in (*MATRICES, "gemm_ar", "a2a_grouped_gemm", "sp_flash_decode", "decode_step"):
        for claim, heed in (("C5", False), ("N5", True)):
            if ask.wants(claim, unit=operator):
                yield ask.measured(claim, operator, float(_wrong(operator, ask.seed, heed=heed)))


def _wrong(operator: str, seed: int, *, heed: bool) -> bool:
    """Whether an answer is wrong, or cannot even be formed, when a rank is late."""
    cls = operator_class(operator)
    plan = Plan(block_m=16) if operator == "decode_step" else SEQ
    late = Conditions(slow_rank=1, slow_s=0.2, heed=heed)
    shape = {k: max(v // 2, 1) if k in cls.halved else v for k, v in cls.sizes.items()}
    job = Job(
        operator=operator, shape=shape, plan=cls.relevant(plan), seed=seed, repetitions=1,
        conditions=late,
    )  # fmt: skip
    try:
        with group_for(2, "loop", wait_s=20.0, link=Link()) as group:
            group.run(job)
    except (MethodFailed, ProblemError):
        return True
    return False


def _tuning(ask: Ask) -> Iterator[Measurement]:
    """C4 and N4 for an operator each."""
    for operator in MATRICES:
        if not ask.wants("C4", "N4", unit=operator):
            continue
        shape = {"m": 1024, "n": 512, "k": 512}
        link = _timing.even_link(operator, shape, SEQ, ask.seed)
        close_group()  # the search has ranks of its own
        ask.say(f"seed {ask.seed}: all plans of {operator}, then a search among them")
        found = _tuner.tune(
            operator,
            {
                "transport": "simlink", "shape": ",".join(f"{k}={v}" for k, v in shape.items()),
                "link-alpha": "50", "link-beta": f"{link.beta_mb_s:.3f}",
            },
            samples=SAMPLES[ask.profile], share=SHARE, seed=ask.seed,
        )  # fmt: skip
        about: dict[str, Any] = {"simulated_link": True, "n_plans": found.n_plans}
        yield ask.measured("C4", operator, found.found_ms, found.best_ms, **about)
        yield ask.measured("N4", operator, found.typical_ms, found.best_ms, **about)


def _gpu_ms(call: Callable[[], Any], repetitions: int = 50) -> float:
    """Median time of a call on the GPU, after twenty that do not count."""
    for _ in range(20):
        call()
    times = []
    for _ in range(repetitions):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return float(sorted(times)[len(times) // 2])


def _on_gpu(ask: Ask) -> Iterator[Measurement]:
    """G1 to G3, where they are wanted; they are not where there is no GPU."""
    from lamps_kernels.flash_combine import flash_combine
    from lamps_kernels.flash_decode import flash_decode
    from lamps_kernels.gemm import gemm_triton, row_major

    draw: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    for side in (4096, 8192):
        if ask.wants("G1", unit=f"side {side}"):
            a, b = torch.randn(side, side, **draw), torch.randn(side, side, **draw)
            out = torch.empty_like(a)
            block: dict[str, Any] = {"block_m": 128, "block_n": 256}
            order = row_major(side, side, group_m=8, **block).cuda()
            ours = _gpu_ms(
                lambda: gemm_triton(a, b, order, out=out, num_warps=8, **block)  # noqa: B023
            )
            library = _gpu_ms(lambda: torch.matmul(a, b))  # noqa: B023
            yield ask.measured("G1", f"side {side}", library, ours)
    if ask.wants("G2", unit="32768 keys"):
        q = torch.randn(1, 32, 128, **draw)
        k, v = (torch.randn(1, 8, 32768, 128, **draw) for _ in range(2))
        used = torch.full((1,), 32768, dtype=torch.int32, device="cuda")
        attend = torch.nn.functional.scaled_dot_product_attention

        def split() -> Any:
            found = flash_decode(q, k, v, used, splits=32)
            return flash_combine(*(x.flatten(0, 1) for x in found))

        library = _gpu_ms(lambda: attend(q[:, :, None], k, v, enable_gqa=True))
        yield ask.measured("G2", "32768 keys", _gpu_ms(split), library)
    for operator in MATRICES:
        if ask.wants("G3", unit=operator):
            shape = {"m": 8192, "n": 4096, "k": 4096}
            small = Plan(block_m=64, block_n=64)  # three stages of float32 fit a program
            plans = {"seq": small, "4": dataclasses.replace(small, mode="split", chunks=4)}
            with group_for(2, "stream", wait_s=60.0, link=Link()) as group:
                found = _timing.medians(group, operator, shape, plans, ask.seed, rounds=2)
            yield ask.measured("G3", operator, found["4"][0], found["seq"][0])
