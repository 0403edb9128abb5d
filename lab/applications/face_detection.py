"""Face detection with OpenCV's cascade classifier: a frame around each face in a video (LockScope table 6)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import clip
import cv2
import numpy

WIDTH, HEIGHT = 160, 120
FRAMES = 4
CASCADE = Path(cv2.data.haarcascades) / "haarcascade_frontalface_default.xml"


def drawn_face(centre: tuple[int, int]) -> numpy.ndarray:
    """What the classifier knows a face by: eyes that are darker than cheeks and nose, and a mouth."""
    column, row = centre
    frame = numpy.full((HEIGHT, WIDTH, 3), 90, numpy.uint8)
    cv2.ellipse(frame, (column, row), (30, 40), 0, 0, 360, (170, 190, 220), -1)
    for side in (-1, 1):
        eye = (column + side * 12, row - 10)
        cv2.ellipse(frame, eye, (9, 5), 0, 0, 360, (80, 90, 110), -1)
        cv2.circle(frame, eye, 3, (20, 20, 20), -1)
        cv2.line(frame, (eye[0] - 9, eye[1] - 8), (eye[0] + 9, eye[1] - 8), (50, 60, 70), 3)
    cv2.ellipse(frame, (column, row + 6), (4, 8), 0, 0, 360, (190, 210, 240), -1)
    cv2.ellipse(frame, (column, row + 22), (13, 4), 0, 0, 360, (80, 80, 140), -1)
    return cv2.GaussianBlur(frame, (5, 5), 0)


def moving_face() -> Iterator[numpy.ndarray]:
    return (drawn_face((60 + 10 * number, HEIGHT // 2)) for number in range(FRAMES))


def prepare(directory: Path) -> Callable[[], None]:
    source, result = directory / "people.avi", directory / "faces.avi"
    clip.write(source, moving_face())
    classifier = cv2.CascadeClassifier(str(CASCADE))

    def annotated(frame: numpy.ndarray) -> numpy.ndarray:
        faces = classifier.detectMultiScale(cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY), 1.3, 3)
        if len(faces) == 0:
            raise ValueError("found no face in a frame that has one")
        for left, top, width, height in faces:
            cv2.rectangle(frame, (left, top), (left + width, top + height), (255, 0, 0), 2)
        return frame

    return lambda: clip.each_frame(source, result, annotated)
