"""Word generation by a recurrent network: from its first letter, letter by letter, each word of a list is written again
(LockScope table 6, `rnn`).

The network runs in onnxruntime. As in an echo state network its recurrent layer is random and stays so, and what reads it is
fitted: that suffices to remember words, and takes no training of a network on an emulated processor.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

WORDS = "anchor butter candle dragon engine forest garden hollow island jungle kettle ladder marble needle orchid pillow".split()
"""Each begins with a letter of its own."""
LETTERS = "abcdefghijklmnopqrstuvwxyz."
"""The last one ends a word."""
UNITS = 256
"""Of the recurrent layer."""
MOST = 16
"""Letters of a word at the most."""


def one_of(letter: str) -> numpy.ndarray:
    """A letter as the network takes it: one step of one sequence."""
    taken = numpy.zeros((1, 1, len(LETTERS)), numpy.float32)
    taken[0, 0, LETTERS.index(letter)] = 1
    return taken


def network(reading: numpy.ndarray | None, source: numpy.random.Generator) -> onnxruntime.InferenceSession:
    """Takes a letter and a state, and gives the next state, and with what reads it how likely each next letter is."""
    recurrent = source.normal(0, 1, (1, UNITS, UNITS))
    recurrent *= 0.9 / abs(numpy.linalg.eigvals(recurrent[0])).max()
    weights = {"input": source.normal(0, 1, (1, UNITS, len(LETTERS))), "recurrent": recurrent}
    state = helper.make_tensor_value_info("state", TensorProto.FLOAT, [1, 1, UNITS])
    letter = helper.make_tensor_value_info("letter", TensorProto.FLOAT, [1, 1, len(LETTERS)])
    nodes = [helper.make_node("RNN", ["letter", "input", "recurrent", "", "", "state"], ["", "next"], hidden_size=UNITS)]
    outputs = [helper.make_tensor_value_info("next", TensorProto.FLOAT, [1, 1, UNITS])]
    if reading is not None:
        weights["reading"] = reading
        nodes.append(helper.make_node("MatMul", ["next", "reading"], ["likely"]))
        outputs.append(helper.make_tensor_value_info("likely", TensorProto.FLOAT, [1, 1, len(LETTERS)]))
    tensors = [numpy_helper.from_array(values.astype(numpy.float32), name) for name, values in weights.items()]
    graph = helper.make_graph(nodes, "words", [letter, state], outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    # As many as there are in a function of one processor.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def fitted() -> onnxruntime.InferenceSession:
    layer = network(None, numpy.random.default_rng(1))
    states, following = [], []
    for word in WORDS:
        state = numpy.zeros((1, 1, UNITS), numpy.float32)
        for letter, after in zip(word, word[1:] + "."):
            state = layer.run(["next"], {"letter": one_of(letter), "state": state})[0]
            states.append(state[0, 0])
            following.append(one_of(after)[0, 0])
    reading = numpy.linalg.lstsq(numpy.array(states), numpy.array(following), rcond=None)[0]
    return network(reading, numpy.random.default_rng(1))


def word_from(session: onnxruntime.InferenceSession, first: str) -> str:
    word, state = first, numpy.zeros((1, 1, UNITS), numpy.float32)
    while len(word) < MOST:
        state, likely = session.run(["next", "likely"], {"letter": one_of(word[-1]), "state": state})
        letter = LETTERS[int(likely.argmax())]
        if letter == ".":
            break
        word += letter
    return word


def prepare(directory: Path) -> Callable[[], None]:
    session = fitted()
    asked, answer = directory / "letters.json", directory / "words.json"
    asked.write_text(json.dumps([word[0] for word in WORDS]))

    def work() -> None:
        words = [word_from(session, first) for first in json.loads(asked.read_text())]
        if words != WORDS:
            raise ValueError(f"found {words}, expected {WORDS}")
        answer.write_text(json.dumps(words))

    return work
