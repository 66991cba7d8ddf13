"""How similar two answers are: figures that can be counted by hand."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropelime.text.similarity import answer_f1, is_bare, token_f1


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Kessel.", "kessel", 1.0),
        ("the river Dray", "Dray, the river", 1.0),
        ("Dray", "the river Dray", 2 * 1 / (1 + 3)),
        ("a a b", "a b b", 2 * 2 / 6),
        ("yes", "no", 0.0),
        ("", "", 1.0),
        ("?!", "...", 1.0),  # neither has a word
        ("", "no", 0.0),
        ("東京です", "東京だ", 2 * 2 / 7),  # by characters: these scripts have no spaces
        ("3.50 in 京都", "in 京", 2 * 2 / 7),
    ],
)
def test_f1_of_words(one: str, other: str, expected: float) -> None:
    assert token_f1(one, other) == pytest.approx(expected)
    assert token_f1(other, one) == pytest.approx(expected)


RECORDED = "When was the album Lanterns released?"
SOLD = "Is it sold in Kessel?"
LARGER = "Is Kessel or Dray larger?"
VISA = "Do I need a visa?"
LETTERS = "Answer with A, B, C or D."


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        (RECORDED, "The album Lanterns was released in 2000.", "2000"),
        (RECORDED, "In 2000.", "It was in 2000."),
        (SOLD, "No.", "It isn't sold in Kessel."),
        (SOLD, "No.", "It is not."),
        (SOLD, "No.", "No, only in Dray."),
        (SOLD, "Yes.", "It is sold in Kessel."),
        (SOLD, "Yes.", "Yes, in several shops."),
        (LARGER, "Kessel is larger.", "Kessel"),
        (LARGER, "Kessel", "kessel!"),
        (
            "Was it released in 1998 or in 2000?",
            "It was released in 2000, not in 1998.",
            "It was in 2000.",
        ),
        ("Who and where?", "Marta, Ida and Dray", "Marta, Dray and Ida"),
        ("Is Chanel No. 5 sold here?", "Chanel No. 5 is sold here.", "Chanel No. 5 is sold."),
        (SOLD, "Yes.", "It is."),
        (SOLD, "It is sold in Kessel.", "No doubt it is sold in Kessel."),
        ("Who wrote it?", "Ann and Bob wrote it.", "Not only Ann but also Bob wrote it."),
        ("Who did it?", "He did.", "He did it."),
        ("How many?", "1,000", "1000"),
        ("Wann ist das Album erschienen?", "Das Album ist im Jahr 2000 erschienen.", "2000"),
        ("Quelle est la capitale ?", "La capitale est Kessel.", "Kessel"),
        ("", "recorded albums", "record album"),
        ("Did it win?", "In 1998, it did not win.", "It did not win in 1998."),
        ("Is it allowed?", "U.S. law does not allow it.", "It is not allowed by U.S. law."),
        ("Did he win?", "He didn't.", "He did not."),
        ("Onde fica a estátua?", "No Rio de Janeiro", "Rio de Janeiro"),
        ("Where did she study?", "At MIT.", "She studied at MIT."),
        ("A or B?", "A good one is A.", "The good one is A."),
        ("Good?", "?!", "?!"),
        ("How heavy is it?", "12.5kg", "12.5 kg"),
        ("When does it open?", "At 9:00.", "At 9."),
        ("What does it cost?", "$5.00", "$5"),
        ("When was it?", "On 5 May 2001.", "On May 5th, 2001."),
        ("How far is it?", "5 km", "5 kilometers"),
        ("Who won?", "No one won.", "Nobody won."),
        ("Is Marta from Kessel?", "False.", "No."),
        ("Is the shop open on Sunday?", "No, it is closed.", "It is closed on Sunday."),
        ("Is Marta from Kessel?", "No, Marta is from Lind.", "Marta is from Lind."),
        ("Who is the mayor?", "I don't know.", "The text does not mention who the mayor is."),
        ("Who is the mayor?", "I'm not sure.", "The document doesn't say."),
        ("Is breakfast provided?", "No.", "Breakfast is not provided."),
        ("Which country?", "It is the U.S.", "US"),
        ("Está aberto?", "Sim.", "Está aberto."),
        ("", 'send({"to": "a@x.org", "n": 1})', 'send({"to": "a@x.org", "n": 1})'),
    ],
)
def test_the_same_answer(question: str, one: str, other: str) -> None:
    assert answer_f1(question)(one, other) >= 0.5
    assert answer_f1(question)(one, other) == answer_f1(question)(other, one)


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        (
            RECORDED,
            "The album Lanterns was released in 2000.",
            "The album Lanterns was released in 1998.",
        ),
        (RECORDED, "It was released in 2000.", "The album was released in Kessel."),
        (RECORDED, "2000", "I do not know."),
        (RECORDED, "2000", ""),
        ("Where was Marta born?", "In Lind, a small town.", "In Kessel, a small town."),
        (SOLD, "It is sold in Kessel.", "It is not sold in Kessel."),
        (SOLD, "Yes.", "No, it isn't."),
        (SOLD, "Yes, it is sold in Kessel by Marta.", "No, it is not sold in Kessel by Marta."),
        (SOLD, "No.", "Not stated."),
        (SOLD, "No.", "It cannot be determined."),
        (VISA, "No.", "I don't know."),
        (
            "Can it be returned?",
            "It can be returned within 30 days.",
            "It can't be returned within 30 days.",
        ),
        ("Did he win?", "He did.", "He didn't."),
        ("Is the bridge open?", "The bridge is open.", "The bridge isn't open."),
        ("Is the bridge open?", "It is.", "It isn't."),
        (
            "Are lamps covered?",
            "By the guarantee, lamps are covered.",
            "By the guarantee, lamps are not covered.",
        ),
        ("Which is larger, the US or the UK?", "The US.", "The UK."),
        ("Did she study at MIT or at Harvard?", "MIT.", "Harvard."),
        ("Did she study at MIT or at Harvard?", "She studied at MIT.", "She studied at Harvard."),
        ("Who inherited, his son or his daughter?", "His son.", "His daughter."),
        ("Was it war or peace?", "War.", "Peace."),
        ("Which option is right? A) red B) blue", "A is correct.", "B is correct."),
        (LARGER, "Kessel is larger.", "Dray is larger."),
        (LARGER, "It is Kessel.", "It is Dray."),
        (LARGER, "Kessel is the larger town.", "Dray is the larger town."),
        ("Who did it?", "He did.", "She did."),
        ("Where is it?", "It is here.", "It is there."),
        (LETTERS, "The answer is A.", "The answer is B."),
        (LETTERS, "Option A", "Option B"),
        ("Is it positive, negative or neutral?", "The mood is positive.", "The mood is negative."),
        ("Did she pass or fail?", "Pass", "No"),
        ("Was the note found?", "The note was found.", "The note was not found."),
        ("Is the T-shirt sold?", "The T-shirt is sold.", "The T-shirt is not sold."),
        ("Is Chanel No. 5 sold here?", "Chanel No. 5 is sold here.", "Chanel No. 5 is not sold here."),
        ("What does it cost?", "It costs $5 million.", "It costs $7 million."),
        ("Which language?", "C++", "C#"),
        ("How cold?", "-5", "5"),
        ("Good?", "👍", "👎"),
        ("Ist Kessel groß?", "Ja.", "Nein."),
        ("东京和京都哪个大？", "东京更大", "京都更大"),
        ("这个安全吗？", "安全", "不安全"),
        ("在哪里？", "上海", "海上"),
        ("これは安全ですか？", "はい", "いいえ"),
        ("", "Yes.", "No."),
        ("Does Ida own a car?", "Yes.", "No."),
        ("Did Marta win a prize?", "Marta won a prize.", "Marta won no prize."),
        ("È aperto?", "Sì.", "No."),
        ("¿Hay pan?", "Hay pan.", "No hay pan."),
        ("Er butikken åpen?", "Butikken er åpen.", "Butikken er ikke åpen."),
        ("Which vitamin prevents scurvy?", "Vitamin A prevents scurvy.", "Vitamin C prevents scurvy."),
        ("Choose A or B.", "A makes sense", "B makes sense"),
        ("How heavy is it?", "12.5kg", "12.7kg"),
        ("What does it cost?", "$1.2M", "$1.5M"),
        ("When was it built?", "In the 19th century.", "In the 20th century."),
        ("When does it open?", "At 9:00.", "At 10:00."),
        ("When was it?", "5 May 2001", "6 May 2001"),
        ("When was it?", "2001-05-05", "2001-05-06"),
        ("How long?", "between 3 and 5 days", "between 3 and 7 days"),
        ("Who wrote it?", "Marta Velling", "Ida Velling"),
        ("What colour?", "light blue", "dark blue"),
        (
            "Does the warranty cover water damage?",
            "No, the warranty does not cover water damage.",
            "The document does not say whether the warranty covers water damage.",
        ),
        ("Who is the mayor?", "The mayor is Ida.", "It is unknown who the mayor is."),
        ("", 'send({"to": "a@x.org"})', 'send({"to": "b@x.org"})'),
        ("", 'send({"to": "a@x.org"})', "I will send it."),
    ],
)
def test_another_answer(question: str, one: str, other: str) -> None:
    assert answer_f1(question)(one, other) < 0.5
    assert answer_f1(question)(one, other) == answer_f1(question)(other, one)


@pytest.mark.parametrize(
    ("answer", "bare"),
    [
        ("Yes.", True), ("No, it isn't.", True), ("It is.", True), ("Nothing.", True), ("NO", True),
        ("War.", False), ("The US.", False), ("US", False), ("Option A", False), ("Will", False),
        ("", False),
    ],
)  # fmt: skip
def test_a_bare_answer(answer: str, bare: bool) -> None:
    assert is_bare(answer) is bare


def test_by_hand() -> None:
    similarity = answer_f1("Who lives in Kessel?")
    assert similarity("Marta, Ida and Cleo", "Ida, Cleo and Bo") == 2 * 2 / (3 + 3)
    assert similarity("Marta and Ida", "Ida and Bo") == 0, "half is shared, and each has its own"
    assert similarity("Marta and 2 dogs", "2 cats and Marta") == 2 * 2 / (3 + 3)
    assert similarity("Marta", "Marta, at the river") == 2 * 1 / (1 + 2)
    # The names of towns are a choice and count twice; what both took from the question does not count.
    similarity = answer_f1(LARGER)
    ports = ("Kessel is a larger old river port", "Dray is a larger old river port")
    assert similarity(*ports) == 2 * 3 / (5 + 5)


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_any_texts(question: str, one: str, other: str) -> None:
    similarity = answer_f1(question)
    assert 0 <= similarity(one, other) <= 1
    assert similarity(one, other) == similarity(other, one)
    assert similarity(one, one) == 1


WORDS = [
    "Marta",
    "Ida",
    "Dray",
    "2000",
    "1998",
    "no",
    "not",
    "yes",
    "the",
    "A",
    "isn't",
    "东京",
    "👍",
    "$5",
    "No. 5",
]


@given(st.lists(st.sampled_from(WORDS), max_size=8), st.randoms(use_true_random=False))
def test_answers_of_the_same_words_stay_within_bounds(some: list[str], random: Random) -> None:
    other = random.sample(some, len(some))
    assert 0 <= answer_f1(LARGER)(" ".join(some), " ".join(other)) <= 1
