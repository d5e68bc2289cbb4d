"""The address of a cluster is looked at before Ray is let loose on it."""

from __future__ import annotations

import socket
import time

import pytest

from lamps.errors import ConfigError
from lamps.scheduler.ray import require_listener


def test_where_somebody_listens_ray_may_try() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        require_listener(f"127.0.0.1:{port}")
        require_listener(f"ray://127.0.0.1:{port}")
    require_listener("auto")


@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_where_nobody_listens_it_may_not(prefix: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"{prefix}127.0.0.1:{server.getsockname()[1]}"
    started = time.monotonic()
    with pytest.raises(ConfigError, match=f"no Ray cluster answers at '{address}': .*refused"):
        require_listener(address)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("address", ["", "here", "here:", "here:there", ":6379", "http://here"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="expected HOST:PORT, ray://HOST:PORT or auto"):
        require_listener(address)


def test_a_port_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="99999"):
        require_listener("127.0.0.1:99999")
