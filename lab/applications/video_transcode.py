"""Video transcoding: ffmpeg makes AV1 with SVT-AV1 of an MPEG-2 video (LockScope table 7).

One ffmpeg goes on for ever: a round gives it a clip of a second to read. So what it takes to start one, hundreds of
libraries, is not recorded.
"""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

FFMPEG = ("ffmpeg", "-nostdin", "-loglevel", "error", "-y")
SIZE, FRAMES = "160x120", 25
PATIENCE = 300.0
"""Seconds until the first pictures are encoded: an encoder looks ahead, at many clips."""


def prepare(directory: Path) -> Callable[[], None]:
    source, result = directory / "clip.m2v", directory / "clip.ivf"
    picture = ("-f", "lavfi", "-i", f"testsrc2=size={SIZE}:rate={FRAMES}", "-frames:v", str(FRAMES))
    subprocess.run([*FFMPEG, *picture, "-c:v", "mpeg2video", source], check=True)
    encoding = ("-c:v", "libsvtav1", "-preset", "11", "-flush_packets", "1", result)
    command = [*FFMPEG, "-f", "mpegvideo", "-i", "pipe:0", *encoding]
    # The encoder tells of errors alone.
    encoder = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "SVT_LOG": "1"})

    def work() -> None:
        encoder.stdin.write(source.read_bytes())
        encoder.stdin.flush()

    begun = time.monotonic()
    while not (result.exists() and result.stat().st_size > 0):
        if time.monotonic() - begun > PATIENCE:
            raise TimeoutError(f"ffmpeg encoded nothing within {PATIENCE} s")
        work()
    return work
