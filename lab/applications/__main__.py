"""Applications that LockScope compares platforms with (LockScope tables 6 and 7), with the libraries that it names.

    python3 lab/applications [--start] [--rounds N] NAME DIRECTORY

An application prepares what it needs in the DIRECTORY, works one round, so that all that is loaded at its first use
is in memory, prints `ready`, waits for a line on standard input (or its end), and works, round after round, until it
is ended: its start is not to be recorded (LockScope §5.2). That is what guests/real/workload does, too.

--start begins at once; --rounds N ends it after so many rounds. Exit code 0, 1 if something fails, 2 if the arguments
make no sense. Everything it works on it makes itself, small enough for an emulated processor.
"""

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

# Where each is: a module, and in it a function that prepares in a directory and returns what works one round.
APPLICATIONS = {
    "image-processing": ("image_processing", "prepare"),
    "video-processing": ("video_processing", "prepare"),
    "face-detection": ("face_detection", "prepare"),
    "training": ("review_analysis", "prepare_training"),
    "serving": ("review_analysis", "prepare_serving"),
    "data-caching": ("data_caching", "prepare"),
    "cnn": ("image_classification", "prepare"),
    "rnn": ("word_generation", "prepare"),
    "video-transcode": ("video_transcode", "prepare"),
    "graph-analytics": ("graph_analytics", "prepare"),
    "fio": ("file_io", "prepare"),
}


def prepared(name: str, directory: Path) -> Callable[[], None]:
    """The application's round. Only what it uses itself is imported."""
    module, function = APPLICATIONS[name]
    return getattr(importlib.import_module(module), function)(directory)


def main() -> int:
    parser = argparse.ArgumentParser(prog="applications", description="see lab/applications/__main__.py")
    parser.add_argument("--start", action="store_true")
    parser.add_argument("--rounds", type=int, metavar="N")
    parser.add_argument("name", choices=APPLICATIONS)
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    work = prepared(arguments.name, arguments.directory)
    work()
    if not arguments.start:
        print("ready", flush=True)
        sys.stdin.readline()
    done = 0
    while arguments.rounds is None or done < arguments.rounds:
        work()
        done += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
