"""Writes at random places of a file by fio, which reads what it wrote again and compares, over and over: one fio, whose start
takes longer than many of its rounds."""

import atexit
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

MIB = 1
"""Of the file: each block of it is written and then read again in a round."""
LOOPS = 1_000_000_000
"""More than there will be."""


def transferred(process: int) -> int:
    """Bytes that a process has read and written so far."""
    lines = Path(f"/proc/{process}/io").read_text().splitlines()
    counts = {name: int(count) for name, count in (line.split(": ") for line in lines)}
    return counts["rchar"] + counts["wchar"]


def prepare(directory: Path) -> Callable[[], None]:
    command = ["fio", "--name=blocks", f"--directory={directory}", f"--size={MIB}m", "--bs=4k", "--rw=randwrite"]
    command += ["--ioengine=psync", "--verify=crc32c", "--verify_fatal=1", f"--loops={LOOPS}", "--thread"]
    fio = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=directory)
    atexit.register(fio.terminate)

    def work() -> None:
        end = transferred(fio.pid) + 2 * (MIB << 20)
        while transferred(fio.pid) < end:
            if fio.poll() is not None:
                raise ChildProcessError(f"fio ended ({fio.returncode})")
            time.sleep(0.02)

    return work
