"""Image classification by a convolutional network in the shape of SqueezeNet: a picture is read, and which stripes it has
is written (LockScope table 6, `cnn`).

The network runs in onnxruntime, a tenth of the size of what the paper starts for it. Its convolutions are random and stay
so, and its last layer is fitted to what these make of pictures: that suffices to tell stripes apart, and takes no training
of a network on an emulated processor.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from sklearn.linear_model import LogisticRegression

SIDE = 64
"""Width and height of a picture."""
KINDS = ["upright", "level", "falling", "rising"]
EACH = 12
"""Pictures of a kind by which the last layer is fitted."""
SQUEEZED = [(8, 16), (16, 32), (16, 32)]
"""Channels of each fire module: those that it squeezes to, and expands to, twice."""
RIGHT = 0.9
"""Share of the pictures that it was fitted by which it must tell right."""


def picture(kind: int, source: numpy.random.Generator) -> numpy.ndarray:
    """Stripes of a kind, of any colour, width and place, with noise; height, width, colour."""
    across, along = numpy.meshgrid(numpy.arange(SIDE), numpy.arange(SIDE))
    place = [across, along, across + along, across - along][kind]
    wave = numpy.sin(2 * numpy.pi * (place / source.uniform(6, 12) + source.uniform()))
    colours = 128 + 90 * wave[:, :, None] * source.uniform(0.5, 1, 3)
    return numpy.clip(colours + source.normal(0, 8, colours.shape), 0, 255).astype(numpy.uint8)


def tensor(image: numpy.ndarray) -> numpy.ndarray:
    """A picture as the network takes it."""
    return (image.astype(numpy.float32).transpose(2, 0, 1)[None] - 128) / 64


class Network:
    """The layers, one behind another."""

    def __init__(self, source: numpy.random.Generator) -> None:
        self.source, self.nodes, self.weights = source, [], []
        self.end, self.channels = "picture", 3

    def add(self, operation: str, *inputs: str, **attributes: object) -> str:
        output = f"layer{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, list(inputs), [output], **attributes))
        return output

    def weight(self, values: numpy.ndarray) -> str:
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values.astype(numpy.float32), name))
        return name

    def convolution(self, start: str, channels: int, to: int, size: int) -> str:
        shape = (to, channels, size, size)
        values = self.source.normal(0, (2 / (channels * size * size)) ** 0.5, shape)
        result = self.add("Conv", start, self.weight(values), kernel_shape=[size, size], pads=[size // 2] * 4)
        return self.add("Relu", result)

    def pool(self) -> None:
        self.end = self.add("MaxPool", self.end, kernel_shape=[3, 3], strides=[2, 2])

    def fire(self, squeezed: int, expanded: int) -> None:
        start = self.convolution(self.end, self.channels, squeezed, 1)
        sides = [self.convolution(start, squeezed, expanded, size) for size in (1, 3)]
        self.end, self.channels = self.add("Concat", *sides, axis=1), 2 * expanded

    def session(self) -> onnxruntime.InferenceSession:
        end = helper.make_tensor_value_info(self.end, TensorProto.FLOAT, [1, None])
        start = helper.make_tensor_value_info("picture", TensorProto.FLOAT, [1, 3, SIDE, SIDE])
        graph = helper.make_graph(self.nodes, "stripes", [start], [end], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        options = onnxruntime.SessionOptions()
        # As many as there are in a function of one processor.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def fitted() -> onnxruntime.InferenceSession:
    source = numpy.random.default_rng(1)
    network = Network(source)
    network.end, network.channels = network.convolution("picture", 3, 16, 3), 16
    for squeezed, expanded in SQUEEZED:
        network.pool()
        network.fire(squeezed, expanded)
    network.end = network.add("Flatten", network.add("GlobalAveragePool", network.end))
    kinds = [number % len(KINDS) for number in range(EACH * len(KINDS))]
    untrained = network.session()
    seen = numpy.vstack([untrained.run(None, {"picture": tensor(picture(kind, source))})[0] for kind in kinds])
    last = LogisticRegression(C=100, max_iter=1_000).fit(seen, kinds)
    if (right := last.score(seen, kinds)) < RIGHT:
        raise ValueError(f"{right} of the pictures are told right, expected {RIGHT}")
    result = network.add("MatMul", network.end, network.weight(last.coef_.T))
    network.end = network.add("Softmax", network.add("Add", result, network.weight(last.intercept_)))
    return network.session()


def prepare(directory: Path) -> Callable[[], None]:
    # Its telemetry has no place in a recording of locks.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    session, source = fitted(), numpy.random.default_rng(2)
    files = [directory / f"{kind}.png" for kind in KINDS]
    for number, file in enumerate(files):
        Image.fromarray(picture(number, source)).save(file)
    answers = directory / "kinds.json"

    def work() -> None:
        told = {}
        for file in files:
            with Image.open(file) as image:
                shares = session.run(None, {"picture": tensor(numpy.asarray(image))})[0][0]
            told[file.stem] = KINDS[int(shares.argmax())]
        if any(kind != found for kind, found in told.items()):
            raise ValueError(f"found {told}, expected each to be itself")
        answers.write_text(json.dumps(told))

    return work
