"""Data caching: a memcached of its own and a client that loads it, both in one place as in LockScope §6.2.2, and the
cache warm before the recording begins (table 5's `data caching`).

They meet at a socket of the file system, so that two of them can run on one host without any network, which the paper
leaves out (§6.1).
"""

import atexit
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from pymemcache.client.base import Client

VALUES = 2_000
REQUESTS = 100
"""Of a round."""
GETS = 0.8
"""Share of requests that read, as in CloudSuite's data caching."""
PATIENCE = 120.0
"""Seconds until the server listens."""


def connected(socket: Path) -> Client:
    begun = time.monotonic()
    while True:
        try:
            client = Client(str(socket))
            client.version()
            return client
        except OSError as error:
            if time.monotonic() - begun > PATIENCE:
                raise TimeoutError(f"memcached does not listen at {socket}") from error
            time.sleep(0.1)


def prepare(directory: Path) -> Callable[[], None]:
    socket = directory / "socket"
    socket.unlink(missing_ok=True)
    server = subprocess.Popen(["memcached", "-u", "root", "-m", "64", "-s", str(socket)])
    atexit.register(server.terminate)
    client = connected(socket)
    source = random.Random(1)
    values = {f"user-{number}": source.randbytes(source.randint(50, 1_000)) for number in range(VALUES)}
    client.set_many(values)
    # Some users are read far more often than others, as on Twitter.
    keys, weights = list(values), [1.0 / (number + 1) for number in range(VALUES)]

    def work() -> None:
        if server.poll() is not None:
            raise ChildProcessError(f"memcached ended ({server.returncode})")
        for key in source.choices(keys, weights, k=REQUESTS):
            if source.random() >= GETS:
                client.set(key, values[key])
            elif client.get(key) != values[key]:
                raise ValueError(f"{key}: found another value than was stored")

    return work
