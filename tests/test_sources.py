"""Invented examples whose sources are known, and what the embedded model makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import pytest

from ropelime import Explanation, explain

pytestmark = pytest.mark.real_model

TOWN = (
    "Kessel lies on the river Dray. The town is famous for its blue pottery. Its market opens on "
    "Fridays. The old mill was closed in 1974.",
    "The Harbour Lantern was designed by Marta Velling. It was lit for the first time in 1891. Forty "
    "steps lead up to its gallery.",
    "Marta Velling was born in Kessel. She studied in Lind and built bridges for ten years. Her "
    "brother kept bees.",
    "Lind lies on the coast. Its ferries leave at nine. The harbour freezes in cold winters.",
)
FIRM = (
    "The pump P-40 is made by Nordal Works. It weighs thirty kilograms. Its motor is blue.",
    "The valve V-7 is made by Tarn and Sons. It is sold in pairs. A seal is included.",
    "Nordal Works has its head office in Brevik. The firm employs two hundred people. It was sold in "
    "2009.",
    "Tarn and Sons has its head office in Lund. The firm makes only valves. It sponsors a rowing club.",
)
OPERA = (
    "The opera The Glass Heron was composed by Ilse Brandt. It has four acts. Its first night was a "
    "failure.",
    "Ilse Brandt taught at the conservatory of Ostra. She wrote two symphonies. She never owned a "
    "piano.",
    "The conservatory of Ostra was founded in 1822. It has ninety students. Its hall burned down once.",
    "Ostra is a port in the north. Ships bring timber and salt. The winters are long.",
)
RULES = (
    "A hotel is paid up to 150 euros a night. In Zurich a hotel is paid up to 220 euros a night.",
    "A lost laptop is reported to the help desk within one hour. Visitors wear a badge.",
    "Guests pay nine euros for lunch. Video meetings are recorded only if all agree.",
)


class Example(NamedTuple):
    """A question that one sentence answers, and how that sentence begins."""

    documents: tuple[str, ...]
    question: str
    output: str
    begins: str


EXAMPLES = {
    "town": Example(
        TOWN, "What is Kessel famous for?", "Kessel is famous for its blue pottery.", "The town is"
    ),
    "firm": Example(
        FIRM, "Who makes the pump P-40?", "The pump P-40 is made by Nordal Works.", "The pump"
    ),
    "opera": Example(
        OPERA, "Who composed The Glass Heron?", "It was composed by Ilse Brandt.", "The opera"
    ),
    "rules": Example(
        RULES, "How much is paid for a hotel in Zurich?",
        "In Zurich a hotel is paid up to 220 euros a night.", "In Zurich",
    ),
}  # fmt: skip
each_example = pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)


# Both steps of a question are cited.


@pytest.mark.parametrize(
    ("documents", "question", "outputs", "steps"),
    [
        (
            TOWN,
            "Where was the designer of the Harbour Lantern born?",
            (
                "The Harbour Lantern was designed by Marta Velling, who was born in Kessel.",
                "The Harbour Lantern was designed by Marta Velling. She was born in Kessel.",
            ),
            {
                "The Harbour Lantern was designed by Marta Velling.",
                "Marta Velling was born in Kessel.",
            },
        ),
        (
            FIRM,
            "Where is the head office of the maker of the pump P-40?",
            (
                "The pump P-40 is made by Nordal Works, whose head office is in Brevik.",
                "The pump is made by Nordal Works. Its head office is in Brevik.",
            ),
            {
                "The pump P-40 is made by Nordal Works.",
                "Nordal Works has its head office in Brevik.",
            },
        ),
        (
            OPERA,
            "Where did the composer of The Glass Heron teach?",
            (
                "The Glass Heron was composed by Ilse Brandt, who taught at the conservatory of Ostra.",
                "The composer is Ilse Brandt. She taught at the conservatory of Ostra.",
            ),
            {
                "The opera The Glass Heron was composed by Ilse Brandt.",
                "Ilse Brandt taught at the conservatory of Ostra.",
            },
        ),
    ],
    ids=["town", "firm", "opera"],
)
def test_an_answer_that_names_both_steps_cites_both(
    documents: Sequence[str], question: str, outputs: Sequence[str], steps: set[str]
) -> None:
    for output in outputs:
        e = explain(context=documents, question=question, output=output, progress=False)
        assert len(e.features) >= 12
        cited = e.cite()
        assert {source.text for source in cited.sources} == steps, output
        assert all(sentence.sources for sentence in cited.sentences)


# What follows an instruction comes from the system prompt.


@pytest.mark.parametrize(
    ("instruction", "follows"),
    [
        (
            "Always close with the words: Stay bright and call us again.",
            "Stay bright and call us again.",
        ),
        ("Recommend our care kit in every answer.", "You may also like our care kit."),
        (
            "If somebody asks about lamps, say that the price list is under revision.",
            "The price list is under revision at the moment.",
        ),
    ],
    ids=["word for word", "in other words", "on a condition"],
)
def test_a_sentence_that_follows_an_instruction_comes_from_the_system_prompt(
    instruction: str, follows: str
) -> None:
    fact = "The manual says: Lamps carry a guarantee of six years."
    system = f"You answer questions about lamps. {instruction} Be polite."
    e = explain(
        messages=[
            {"role": "system", "content": system},
            {"role": "user", "content": f"{fact} Bulbs carry none. The switch is on the left side."},
            {"role": "user", "content": "How long is the guarantee of a lamp?"},
        ],
        output=f"Lamps carry a guarantee of six years. {follows}",
        progress=False,
    )
    known, instructed = e.grounding
    assert (known.grounded, instructed.grounded) == (True, True)
    assert [source.document for source in known.sources] == [1]
    assert [source.where for source in instructed.sources] == ["message 1, system"]
    texts = {source.number: source.text for source in e.cite().sources}
    cited = [[texts[n] for n in sentence.sources] for sentence in e.cite().sentences]
    assert cited == [[fact], [instruction]]


# How a prompt is split, and what else is in it, hardly changes the share of the right sentence.


@each_example
def test_a_cut_through_an_irrelevant_sentence_changes_little(example: Example) -> None:
    whole = _explained(example)
    right = _right(whole, example)
    for other in {0, len(whole.features) - 1, (right + 2) % len(whole.features)} - {right}:
        e = _explained(example, features=_cut(whole, other))
        assert len(e.features) == len(whole.features) + 1
        at = _right(e, example)
        assert e.top(1)[0].index == at
        assert e.normalized_weights[at] == pytest.approx(whole.normalized_weights[right], abs=0.05)


@each_example
def test_the_two_parts_of_the_right_sentence_share_its_weight(example: Example) -> None:
    whole = _explained(example)
    right = _right(whole, example)
    e = _explained(example, features=_cut(whole, right))
    assert {ranked.index for ranked in e.top(2)} == {right, right + 1}
    both = e.normalized_weights[[right, right + 1]]
    assert both.min() > 0.1
    assert both.sum() == pytest.approx(whole.normalized_weights[right], abs=0.05)


@each_example
def test_ten_irrelevant_sentences_change_little(example: Example) -> None:
    more = (
        "Bees live in hives.", "The kettle is on the shelf.", "Rain fell on Tuesday.",
        "Chess has thirty-two pieces.", "Salt dissolves in water.", "The library closes at six.",
        "A violin has four strings.", "Foxes hunt at night.", "The path leads through a wood.",
        "Cotton grows in warm countries.",
    )  # fmt: skip
    few = _explained(example)
    share = few.normalized_weights[_right(few, example)]
    mixed = [text for pair in zip_longest(more, example.documents) for text in pair if text]
    for documents in ((*example.documents, *more), (*more, *example.documents), mixed):
        e = _explained(example._replace(documents=tuple(documents)))
        assert len(e.features) == len(few.features) + 10
        at = _right(e, example)
        assert e.top(1)[0].index == at
        assert e.normalized_weights[at] == pytest.approx(share, abs=0.15)


def _explained(example: Example, **options: Any) -> Explanation:
    given: dict[str, Any] = {"question": example.question, "output": example.output}
    e: Explanation = explain(context=example.documents, progress=False, **given, **options)
    return e


def _right(e: Explanation, example: Example) -> int:
    """The feature with the beginning of the sentence that answers the question."""
    (at,) = [i for i, f in enumerate(e.features) if f.text.startswith(example.begins)]
    return at


def _cut(e: Explanation, index: int) -> list[tuple[int, int]]:
    """The features as spans, with one of them cut before a word in its middle."""
    spans = [(feature.start, feature.end) for feature in e.features]
    start, end = spans[index]
    starts = [start + i + 1 for i, c in enumerate(e.features[index].text.strip()) if c == " "]
    middle = starts[len(starts) // 2]
    return [*spans[:index], (start, middle), (middle, end), *spans[index + 1 :]]
