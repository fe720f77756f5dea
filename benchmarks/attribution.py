"""Methods of attribution by insertion and deletion curves on 500 fixed texts, and what AttnLRP costs beside a gradient.

The tokens of a text are ranked by their scores. Deletion replaces the first of them by the mean of all embeddings,
insertion keeps the first of them and replaces the others, a fifth of the tokens at a time; a curve is the number after
each, and its area the mean over the fifths. A good ranking has a small area of deletion and a large one of insertion.
The number is the log-probability of the most probable next token for SmolLM2, and for MiniLM, whose special tokens
stay, the similarity of a text and a statement about it. Beside the methods: the tokens by the weight that they receive,
and in random order.

    python benchmarks/attribution.py                500 texts, two models, and the table in benchmarks/results
    python benchmarks/attribution.py --minutes 20   of each model as many texts as 20 minutes allow
    python benchmarks/attribution.py --smoke        two texts, nothing written
"""

from __future__ import annotations

import argparse
import math
import random
import time
from datetime import date
from typing import Any

import numpy as np
from _measure import interval, kernel_in_words, machine, markdown, versions, write_results

import regard
from regard import Trace
from regard.functional import softmax
from regard.metrics import ATTRIBUTION_METHODS, attribute
from regard.metrics.attribution_methods import AttributionInputs
from regard.metrics.attribution_target import attributed_metric, most_probable_token
from regard.nn import parameters

MODELS = {"smollm2": 8, "minilm": 32}  # and the steps of integrated gradients
FIFTHS = 5
WORDS = {
    "name": "Mary John Anna Peter Laura David Emma Paul Julia Mark Sarah Tom",
    "other": "Alice Henry Grace Simon Clara Frank Helen Oscar Nora Felix Ruth Hugo",
    "place": "market station library garden museum harbour office kitchen theatre hospital",
    "thing": "letter bottle ticket book basket key hammer photograph coat violin",
    "country": "France Italy Japan Russia Egypt Greece Spain Germany China England",
    "animal": "dog horse cat fox rabbit bear wolf lion mouse goat",
    "job": "teacher doctor farmer baker painter lawyer pilot nurse carpenter singer",
    "color": "red green blue yellow black white brown purple",
    "number": "two three four five six seven eight nine ten twelve",
}
FRAMES = (  # a text whose next token depends on earlier ones, and a statement about it
    ("When {name} and {other} went to the {place}, {name} gave a {thing} to", "{other} received a {thing}."),
    ("{name} bought a {thing} on holiday. The capital of {country} is the city of", "A city in {country}."),
    ("{name} is a {job} and {other} saw a {animal}. Asked about work, {name} says: I am a", "{name} has a job."),
    ("The {animal} sat near the {place}. {name} painted it {color}. The color of the {animal} is", "It is {color}."),
    ("{name} put a {thing} in the {place}. {other} looked for the {thing} and found it in the", "A lost {thing}."),
    ("There are {number} {animal}s near the {place}. {name} counted: the number of {animal}s is", "{number} animals."),
    ("{other} lives in {country} with a {animal}. {name} lives alone. The owner of the {animal} is", "A pet {animal}."),
    ("The {job} lost a {color} {thing} at the {place}. Asked what was lost, {name} said: a {color}", "A {thing}."),
)  # fmt: skip


def texts(count: int) -> list[tuple[str, str]]:
    """Return texts, all different, each with a statement about it."""
    draw, found = random.Random(0), dict[str, str]()
    while len(found) < count:
        text, statement = FRAMES[len(found) % len(FRAMES)]
        words = {name: draw.choice(each.split()) for name, each in WORDS.items()}
        found.setdefault(text.format(**words), statement.format(**words))
    return list(found.items())


def areas(model: Any, text: str, statement: str, mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the areas of deletion and insertion by each method, by attention and in random order, ``M 2``."""
    encoding = model.tokenizer(text)
    to = statement if model.name == "minilm" else most_probable_token(model, encoding).id
    each = [
        attribute(model, encoding, to, method=name, steps=MODELS[model.name] if entry.has_steps else None)
        for name, entry in ATTRIBUTION_METHODS.items()
    ]
    scores = [*(found.scores for found in each), each[0].attended, rng.random(len(encoding))]
    places = np.flatnonzero(~np.array(encoding.special_tokens_mask))
    kept = np.ones((len(scores), 2, FIFTHS + 1, len(encoding)), bool)
    for of_method, values in zip(kept, scores, strict=True):
        order = places[np.argsort(-values[places], kind="stable")]
        for i in range(FIFTHS + 1):
            end = round(i * len(order) / FIFTHS)
            of_method[0, i, order[:end]] = of_method[1, i, order[end:]] = False
    curves = numbers(model, encoding, to, kept.reshape(-1, len(encoding)), mean).reshape(kept.shape[:-1])
    return np.asarray((curves[..., 1:] + curves[..., :-1]).mean(-1) / 2)


def numbers(model: Any, encoding: Any, to: Any, kept: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the number with the tokens that are kept, ``N T``."""
    rows, places = np.unique(kept, axis=0, return_inverse=True)

    def replaced(x: np.ndarray) -> np.ndarray:
        return np.where(rows[..., None], x, mean.astype(x.dtype))

    trace = Trace(only=(), edit={"token_embeddings": replaced})
    output = model([encoding] * len(rows), trace=trace)
    if model.name == "minilm":
        vectors, (other,) = output.hidden.mean(1), model([to]).hidden.mean(1)
        cosines = vectors @ other / np.linalg.norm(vectors, axis=-1) / np.linalg.norm(other)
        return np.asarray(cosines[places], np.float64)
    return np.asarray(np.log(softmax(output.head(output.hidden[:, -1]).astype(np.float64)))[places, to])


def measure(name: str, count: int, minutes: float) -> str:
    """Return the table of a model, of as many texts as the minutes allow."""
    model, rng = regard.load(name, download=False), np.random.default_rng(0)
    weight = next(x for key, x in parameters(model).items() if key.endswith("token_embedding.weight"))
    mean, found = np.asarray(weight, np.float32).mean(0), []
    start = time.perf_counter()
    for text, statement in texts(count):
        found.append(areas(model, text, statement, mean, rng))
        print(f"{name}: {len(found)} of {count}", flush=True)
        if time.perf_counter() - start > 60 * minutes:
            break
    deletion, insertion = np.moveaxis(np.array(found), 0, -1).swapaxes(0, 1)  # M N each
    titles = [*(entry.title for entry in ATTRIBUTION_METHODS.values()), "attended to", "random order"]
    ours = list(ATTRIBUTION_METHODS).index("attnlrp")
    rows = []
    for i, title in enumerate(titles):
        ahead = (insertion - deletion)[ours] - (insertion - deletion)[i]
        rows.append([title, interval(deletion[i]), interval(insertion[i]), "" if i == ours else interval(ahead)])
    header = ["", "deletion (less is better)", "insertion (more is better)", "AttnLRP ahead by"]
    return f"## {name}, {len(found)} texts\n\n{markdown(header, rows)}\n\n{cost(model, rounds=3 if count < 10 else 25)}"


def cost(model: Any, rounds: int) -> str:
    """Return in a sentence how many times as long as a gradient AttnLRP takes the processor."""
    found = []
    for repeats in (1, 8):
        text, statement = texts(1)[0]
        encoding = model.tokenizer(" ".join([text] * repeats))
        metric = attributed_metric(model, encoding, statement if model.name == "minilm" else None)
        inputs = AttributionInputs(model, encoding, metric, "zero", 1, 1, lambda: None)
        ratios = [seconds("attnlrp", inputs) / seconds("gradient", inputs) for _ in range(rounds + 1)][1:]
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        found.append(f"{middle:.2f} ({low:.2f} to {high:.2f}) at {len(encoding)} tokens")
    return f"AttnLRP takes {' and '.join(found)} times the processor time of gradient × input (medians, quartiles)."


def seconds(method: str, inputs: AttributionInputs) -> float:
    """Return the processor time of a method."""
    start = time.process_time()
    ATTRIBUTION_METHODS[method].function(inputs)
    return time.process_time() - start


def written(tables: list[str]) -> str:
    """Return the page of the tables."""
    return "\n\n".join(
        (
            "# Methods of attribution",
            f"{machine()}; {date.today()}. {versions('numpy')}. {kernel_in_words()}. "
            "Made by `python benchmarks/attribution.py`.",
            "Areas under curves, in brackets 95% intervals by the bootstrap over texts: for smollm2 of the "
            "log-probability of the most probable next token in nats, for minilm of the similarity to a statement. "
            "AttnLRP ahead by: insertion minus deletion of AttnLRP, minus that of the method, for the same texts. The "
            "texts are short sentences from eight frames, which the script fills; integrated gradients have "
            f"{' and '.join(f'{steps} steps for {name}' for name, steps in MODELS.items())}.",
            *tables,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=math.inf, help="at most, for each model")
    parser.add_argument("--smoke", action="store_true", help="two texts; writes nothing")
    arguments = parser.parse_args()
    tables = [measure(name, 2 if arguments.smoke else 500, arguments.minutes) for name in MODELS]
    page = written(tables)
    print(page)
    if not arguments.smoke:
        write_results("attribution.md", page)


if __name__ == "__main__":
    main()
