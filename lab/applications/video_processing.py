"""Video processing with OpenCV: a video in grey (LockScope table 6)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import clip
import cv2
import numpy

WIDTH, HEIGHT = 160, 120
FRAMES = 10


def moving_disc() -> Iterator[numpy.ndarray]:
    rows, columns = numpy.mgrid[0:HEIGHT, 0:WIDTH]
    background = numpy.stack((rows, columns, rows + columns), axis=-1).astype(numpy.uint8)
    for number in range(FRAMES):
        centre = (WIDTH * number // FRAMES, HEIGHT // 2)
        yield cv2.circle(background.copy(), centre, HEIGHT // 5, (40, 200, 240), thickness=-1)


def prepare(directory: Path) -> Callable[[], None]:
    source, result = directory / "video.avi", directory / "grey.avi"
    clip.write(source, moving_disc())

    def grey(frame: numpy.ndarray) -> numpy.ndarray:
        return cv2.cvtColor(cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)

    return lambda: clip.each_frame(source, result, grey)
