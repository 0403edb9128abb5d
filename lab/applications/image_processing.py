"""Image processing with Pillow: a picture with several effects applied, each result written (LockScope table 6).

The same effects, on a picture of the same size, as the workload `image` of guests/real/workload.
"""

from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageFilter, ImageOps

SIDE = 128
"""Width and height of the picture."""


def prepare(directory: Path) -> Callable[[], None]:
    picture = directory / "picture.png"
    shade = Image.linear_gradient("L").resize((SIDE, SIDE))
    noise = Image.effect_noise((SIDE, SIDE), 64)
    Image.merge("RGB", (shade, shade.rotate(90), noise)).save(picture)

    def work() -> None:
        with Image.open(picture) as image:
            image.load()
        results = {
            "turned": image.transpose(Image.Transpose.ROTATE_90),
            "grey": ImageOps.grayscale(image),
            "blurred": image.filter(ImageFilter.BoxBlur(2)),
            "small": image.resize((SIDE // 2, SIDE // 2)),
        }
        for name, result in results.items():
            result.save(directory / f"{name}.png")

    return work
