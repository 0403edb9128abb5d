"""Review analysis with scikit-learn: a logistic regression that tells good reviews from bad ones by their words is
trained on a text file and written (LockScope table 6), or read and asked."""

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path

import joblib
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

REVIEWS = 200
WORDS = 12
"""Of a review, a third of which say whether it is good."""
GOOD = "excellent tasty friendly lovely fresh superb charming generous quick warm".split()
BAD = "awful stale rude cold bland overpriced slow noisy dirty disappointing".split()
NEITHER = "the food was and service in place they had very table we it our dinner menu waiter drinks room lunch".split()
RIGHT = 0.9
"""Share of its own reviews that a model must get right."""


def reviews() -> list[tuple[str, int]]:
    """Texts, each with 1 if it is good, else 0; always the same."""
    source = random.Random(1)

    def review(good: int) -> str:
        words = source.choices(GOOD if good else BAD, k=WORDS // 3) + source.choices(NEITHER, k=WORDS - WORDS // 3)
        source.shuffle(words)
        return " ".join(words)

    return [(review(number % 2), number % 2) for number in range(REVIEWS)]


def trained_on(file: Path) -> Pipeline:
    with file.open(newline="") as lines:
        texts, labels = zip(*((text, int(label)) for text, label in csv.reader(lines)))
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    model.fit(texts, labels)
    if (right := model.score(texts, labels)) < RIGHT:
        raise ValueError(f"{right} of the reviews are told right, expected {RIGHT}")
    return model


def prepare_training(directory: Path) -> Callable[[], None]:
    source, result = directory / "reviews.csv", directory / "model"
    with source.open("w", newline="") as lines:
        csv.writer(lines).writerows(reviews())

    def work() -> None:
        joblib.dump(trained_on(source), result)

    return work


def prepare_serving(directory: Path) -> Callable[[], None]:
    prepare_training(directory)()
    model, result = directory / "model", directory / "answer.json"
    text, label = reviews()[1]

    def work() -> None:
        answer = int(joblib.load(model).predict([text])[0])
        if answer != label:
            raise ValueError(f"found {answer} for a review of the training, expected {label}")
        result.write_text(json.dumps({"review": text, "good": answer}))

    return work
