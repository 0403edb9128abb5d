"""Short videos: what the applications that process videos read, and how they write them, as motion JPEG."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import cv2
import numpy

RATE = 25.0
"""Frames in a second."""


def write(file: Path, frames: Iterable[numpy.ndarray]) -> None:
    """Frames of one size, in three colours."""
    writer = None
    for frame in frames:
        height, width = frame.shape[:2]
        writer = writer or cv2.VideoWriter(str(file), cv2.VideoWriter_fourcc(*"MJPG"), RATE, (width, height))
        writer.write(frame)
    if writer is None or not writer.isOpened():
        raise OSError(f"{file}: no video was written")
    writer.release()


def read(file: Path) -> Iterator[numpy.ndarray]:
    """Its frames. A video without any is an error."""
    reader = cv2.VideoCapture(str(file))
    found, frame = reader.read()
    if not found:
        raise OSError(f"{file}: found no frame in it")
    while found:
        yield frame
        found, frame = reader.read()
    reader.release()


def each_frame(source: Path, result: Path, effect: Callable[[numpy.ndarray], numpy.ndarray]) -> None:
    """Writes the video with an effect applied to each frame."""
    write(result, map(effect, read(source)))
