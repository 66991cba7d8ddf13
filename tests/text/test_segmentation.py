"""Known answers for the three segmenters, and properties that hold for any string."""

import random
import time
import unicodedata
from collections.abc import Callable
from itertools import pairwise

import pytest
import regex
import sentencex
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime.text.segmentation import Span, paragraphs, questions, sentences, words

Segmenter = Callable[[str], list[Span]]
SEGMENTERS: list[Segmenter] = [sentences, paragraphs, words]


def pieces(segmenter: Segmenter, text: str) -> list[str]:
    """Return the text of each unit."""
    return [text[start:end] for start, end in segmenter(text)]


def check_tiling(segmenter: Segmenter, text: str) -> None:
    """Assert what holds for every segmenter on every text."""
    spans = segmenter(text)
    assert segmenter(text) == spans
    if not text.strip():
        assert spans == []
        return
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text)
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert all(text[start:end].strip() for start, end in spans)
    assert not any(text[start].isspace() for start, _ in spans[1:])
    clusters = {match.end() for match in regex.finditer(r"\X", text)}
    assert clusters.issuperset(end for _, end in spans)


# In the tables below "|" marks the expected cuts, so that a case reads as the text it is about.
PROSE = {
    "plain": "One is here. |Two is here! |Is three here? |Yes.",
    "only one": "Hello",
    "title": "Dr. Smith met Mr. and Mrs. Jones. |Prof. Lee left.",
    "country": "He went to the U.S. |He liked it. |The U.S. Army came.",
    "latin": "See e.g. Table 3, i.e. this one. |Cats vs. dogs. |Apples, pears, etc. are fine.",
    "etc at the end": "Apples, pears, etc. |Then we left.",
    "number": "No. 5 is alive. |See no. 6 and p. 12 for more.",
    "initials": "J. R. R. Tolkien wrote it. |George W. Bush read it.",
    "firm": "Acme Inc. sold it. |Foo Ltd. is gone.",
    "saint": "He lives on St. John St. in town. |She does not.",
    "clock": "At 5 a.m. he woke. |It was 5 p.m. |The sun set.",
    "degree": "She has a Ph.D. in physics. |He has none.",
    "reference": "See Vol. 3, Eq. (5) and Figs. 3 and 4. |It is approx. 5 km.",
    "decimal": "Pi is 3.14 today. |It costs $3.50. |Great.",
    "url": "Visit https://example.com/a.b?c=d. |See www.example.com/A.Html?Q=B.C now. |Done.",
    "mail": "Mail bob@x.co.uk now. |Or Bob.Smith@Example.Com.",
    "file": "Open main.py please. |Then README.Md and see. |Call foo.Bar() too.",
    "dotted names": "Use System.Collections.Generic or ASP.NET Core. |Node.js works.",
    "version": "Version 2.0.1 is out. |Use v1.2.3. |Python 3.11 too.",
    "ellipsis": "Wait... what? |Well... |He left. |Hm… |And so on… he said.",
    "quote then more": '"He said no." |Then she left.',
    "quote continues": '"Stop!" she said. |“No.” he said. |"Why?" |He ran.',
    "quote inside": 'He said "Stop. Go away." and left. |She did not.',
    "neighbour quotes": '"I am." |"Good." |They left.',
    "opening quote": "Then we left. |'Tis odd. |It is.",
    "parentheses": "(This is a note.) |And more. |He came (as usual.) |Then left. |[Yes.] |So.",
    "firm in parentheses": "The firm (Acme Inc.) John left. |Yes.",
    "runs": "Really?! |Yes!! |No way?!?! |OK.",
    "emphasis": "Use **bold.** |Then go. |_It._ |Next.",
    "notes": "Text.[1] |Then more. |Text.¹ |Then.",
    "emoji": "Me too! 🎉 |Great 👍 yes. |Wow!🎉🎉 |Next one. |Fine. 👨‍👩‍👧‍👦 |Family.",
    "emoji before stop": "I am happy 😀. |Good.",
    "no space": "This has no space.|Yes it does.|So there.",
    "lower case": "hello world. |this is lower. |another one!",
    "words like states": "He saw me. |Peter left. |It is art. |Mary said ok. |No. |John did not.",
    "no and number": "Did she? |No. |I did. |She said no. |Paul has the Symphony No. V by him.",
    "letters": "A. First of all. |B. Second of all.",
    "chinese": "今天天气很好。|我们去公园吧！|你来吗？|「我来。」|他说。",
    "chinese curly": "他说：“你好。再见。”|然后走了。|价格是3.14元。",
    "chinese with ascii": "今天，好吗?|我来!|你呢?",
    "japanese": "「行くよ。」と彼は言った。|すごい！|本当？",
    "hindi": "यह एक वाक्य है। |यह दूसरा है। |क्या?",
    "arabic": "كيف حالك؟ |أنا بخير. |شكرا!",
    "urdu": "یہ ایک جملہ ہے۔ |دوسرا؟",
    "russian": "Привет, мир. |А. С. Пушкин родился в Москве. |Это т.е. так. |В 1799 г. он жил.",
    "german": "Er kam am 3. Mai an. |Das ist z. B. gut. |„Hallo.“ |Dann ging er, siehe Abb. 3.",
    "french": "M. Dupont est là. |Il dit : « Bonjour. » |Il part avec Mme. Roy. |Vrai ?! |Oui.",
    "spanish": "¿Qué tal? |¡Hola! |El Sr. García y la Sra. Pérez vinieron. |¿Y tú?",
    "italian": "Il Sig. Rossi è qui. |La pasta non è pronta, vedi pag. 5.",
    "portuguese": "O Sr. Silva não veio. |A lei n.º 5 é para a Sra. Lima.",
    "greek": "Γεια σου. |Τι κάνεις; |Καλά.",
    "korean": "안녕하세요. |잘 지내세요? |네!",
    "khmer": "សួស្តី។ |បាទ។",
    "burmese": "မင်္ဂလာပါ။ |နေကောင်းလား။",
    "amharic": "ሰላም። |እንዴት ነህ፧ |ደህና።",
    "armenian": "Բարեւ։ |Ինչպես ես։",
    "hebrew": "שלום. |מה שלומך? |טוב.",
    "thai": "สวัสดีครับ ผมชื่อสมชาย",
    "odd spaces": "One.\u3000|Two.\u00a0\u2009|Three.",
}


@pytest.mark.parametrize("marked", PROSE.values(), ids=PROSE)
def test_sentences_of_prose(marked: str) -> None:
    """Sentence ends are found, and stops that are none are not."""
    assert pieces(sentences, marked.replace("|", "")) == marked.split("|")


# Here "¦" marks the cuts, as "|" is for table rows.
LINES = {
    "leading space": "  One. ¦Two.   ¦Three. \n",
    "blank line": "no stop here\n\n¦and more\n \t \n¦end",
    "crlf": "One here.\r\n¦Two\r\n\r\n¦three",
    "short lines": "Roses are red\n¦Violets are blue\n¦the end",
    "wrapped": "This line has been wrapped by an editor in the\nmiddle. ¦And so it goes.",
    "wrapped crlf": "This line has been wrapped by an editor in the\r\nmiddle of it.\r\n¦Next.",
    "wrapped twice": "This line has been wrapped by an editor in the\nmiddle, just as this line "
    "here was also wrapped\nby it. ¦Done.",
    "wrapped after a stop": "This line ends where the editor wrapped it too.\n¦Then it continues.",
    "wrapped after a title": "A line that was wrapped in the middle of a name: Dr.\nSmith it was.",
    "wrapped at a number": "The line was wrapped so that it is found on page\n12. ¦Then we went.",
    "short stops": "one.\n¦two.\n¦three",
    "colon": "Answer this question about the document below:\n¦what is it",
    "chat": "Alice: I think that we should all go to the park\n¦Bob: no\n¦Alice: ok",
    "bullets": "Get:\n¦- milk. And eggs.\n¦* bread\n¦• salt\n¦+ oil\n",
    "numbers": "1. one\n¦2. two\n¦10) ten\n¦(3) three\n¦a) letter\n¦(iv) roman\n¦1.2. nested",
    "list after long line": "These are the things that I would like you to buy\n¦- milk\n¦- eggs",
    "wrapped item": "- an item that continues past the fortieth character of it\n  and wraps\n¦- two",
    "deep wrapped item": "1.  an item that continues past forty characters\n    and wraps\n¦2.  two",
    "item then text": "- an item that has a stop at the end of its long line.\n¦More text.",
    "nested items": "- one\n    ¦- two\n    ¦- three",
    "headings": "# Title\n¦Text here. ¦More.\n¦## Sub. Title\n¦Text",
    "heading after long line": "This is a line of text that is long and has no stop\n¦# Title\n¦x",
    "underlined": "Title\n=====\n¦Text.",
    "rule": "One.\n\n---\n\n¦Two.",
    "rule first": "---\n\nOne.\n¦Two.",
    "table": "| a. B | b |\n|------|---|\n¦| 1. X | 2 |\n¦| 3    | 4 |\n",
    "fence": "Run it:\n¦```python\ndef f(x):\n    ¦return x. Y\n\n¦print(1)\n```\n¦Then. ¦Go.",
    "fence with blank": "```\n\none\n¦two\n```",
    "fence alone": "One.\n```\n```\n¦Two.",
    "fence of four": "````\none\n```\n¦two\n````\n¦end",
    "open fence": "Begin.\n¦```\none\n¦two",
    "braces": "```\nif (x) {\n  ¦y();\n}\n```",
    "indented code": "Run it:\n\n    ¦x = f. G(1)\n    ¦y = 2\n\t¦z = 3\n¦Done.",
    "indented prose": "    It was a dark and stormy night in town. ¦The rain fell.",
    "only marks": "?!",
    "marks open a block": "One\n\n¦? Two. ¦Three.",
    "marks first": "... ¡¿ so?",
    "marks after": "One.\n¦Two.\n\n. . .\n\n”\n¦Three.",
    "emoji line": "One.\n¦🎉\n¦Two.",
    "dialogue": "— Привет. ¦Как дела?\n¦— Хорошо.",
    "other line ends": "one\u2028¦two\x0b¦three\x0c¦four\x85¦five\r¦six",
}


@pytest.mark.parametrize("marked", LINES.values(), ids=LINES)
def test_sentences_of_lines(marked: str) -> None:
    """Lines end a sentence where they mean something, and not where prose was wrapped."""
    assert pieces(sentences, marked.replace("¦", "")) == marked.split("¦")


WORDS = {
    "plain": "Hello, |world!",
    "space": " \tHello   |big\n\n|world ",
    "marks": "(I |said: |“no”) |-- |don't |3.14 |a-b",
    "chinese": "我|用|Python3.11|写|code，|很|好。|价|格|$5|元",
    "opening mark": "「行|く|よ。」|と |“彼|は”",
    "japanese": "スーパー|で |買|う",
    "halfwidth mark": "か\u3099|き",
    "thai": "ส|วั|ส|ดี |ค|รั|บ",
    "khmer": "សួ|ស្តី",
    "hindi": "यह |क्षत्रिय |है।",
    "korean": "안녕 |하세요",
    "arabic": "كيف |حالك؟",
    "emoji": "hi |👨‍👩‍👧‍👦 |👍🏽 |🇩🇪🇫🇷",
}


@pytest.mark.parametrize("marked", WORDS.values(), ids=WORDS)
def test_words(marked: str) -> None:
    """Words end at white space, or at Unicode word boundaries where a script has none."""
    assert pieces(words, marked.replace("|", "")) == marked.split("|")


@pytest.mark.parametrize(
    "marked",
    [
        "one\ntwo",
        "one\n\n|two\n \t\n\n|three\n",
        "one\r\n\r\n|two\r\nthree\r\n\r\n",
        "\n\n one\n\n    |two",
        "one\r\r|two",
        "one\u2029\u2029|two",
    ],
)
def test_paragraphs(marked: str) -> None:
    """Paragraphs end at blank lines and nowhere else."""
    assert pieces(paragraphs, marked.replace("|", "")) == marked.split("|")


@pytest.mark.parametrize("segmenter", SEGMENTERS)
@pytest.mark.parametrize("text", ["", " ", "\n\n", "\t \r\n \u3000\u2029\x1c"])
def test_blank_text_has_no_units(segmenter: Segmenter, text: str) -> None:
    """A text without ink has nothing to switch off."""
    assert segmenter(text) == []


def test_long_quotation_is_split() -> None:
    """A text that somebody put in quotation marks is still a text."""
    quoted = "This is a sentence of the quoted document. " * 10
    text = f'Sum this up: "{quoted.strip()}" Then stop.'
    assert len(sentences(text)) == 11
    assert pieces(sentences, text)[-2:] == [
        'This is a sentence of the quoted document." ',
        "Then stop.",
    ]


def test_long_line_is_split_as_if_in_one_go() -> None:
    """The windows in which the splitter sees a long line leave no trace."""
    sentence = 'Dr. Smith, of the U.S. Army, said "no. 5 is 3.14" (e.g. here) to me. '
    assert set(pieces(sentences, sentence * 500 + "End.")) == {sentence, "End."}


def test_unbroken_run_is_one_sentence() -> None:
    """A run with no place to cut stays whole across windows."""
    assert len(sentences("x" * 20_000)) == 1
    assert len(sentences("so " * 10_000)) == 1


def rewrite(_: str, text: str) -> list[str]:
    """Split at stops, but strip and squeeze white space."""
    return [" ".join(part.split()) + "." for part in text.split(".") if part.strip()]


@pytest.mark.parametrize(
    "splitter",
    [
        rewrite,
        lambda _, text: [],
        lambda _, text: [text.upper(), "", "not in there"],
        lambda _, text: list(text),
        lambda _, text: [text, text],
    ],
)
def test_misbehaving_splitter(
    splitter: Callable[[str, str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the splitter returns, the spans tile the text."""
    monkeypatch.setattr(sentencex, "segment", splitter)
    text = 'Ends here. Runs  on\u0301 there. 👨‍👩‍👧 "Is it (so.)" And so on. ' * 200
    check_tiling(sentences, text)


def test_stripped_pieces_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A splitter that drops white space still gives true offsets."""
    monkeypatch.setattr(sentencex, "segment", rewrite)
    assert pieces(sentences, "  One is.   Two is.  One is. ") == [
        "  One is.   ",
        "Two is.  ",
        "One is. ",
    ]


ODD = [
    "\ud800 Lone. \udfff\n\nSurrogates.\ud800",
    "\0. \0\0 A.\0 B.",
    "\u202eright to left. \u202cAnd back. \u2067x\u2069",
    "👩🏽‍🚀. 👨‍👩‍👧‍👦! 🏴󠁧󠁢󠁥󠁮󠁧󠁿 Yes. 🇩🇪🇫🇷. 1️⃣ One.",
    " \u0301a. \u0301B.\n\n\u0301c \u0301 d\n\n \u0301",
    "\u200d. \u200dA\u200d。\u200d今\u200d天",
    "e\u0301. E\u0301! क्षि। ക്ഷ. မ္မ ក្ក",
    "\r. \r\n\r\r\n.\n\r",
    "각. ㄱㅏㄱ. \u1100\u1161\u11a8.",
    "a \u1ab3\u1a60\U0001183a\u06ea\u1780! b",  # a linker, and other marks before the letter it links
]


@pytest.mark.parametrize("segmenter", SEGMENTERS)
@pytest.mark.parametrize("text", ODD)
def test_odd_text_is_tiled(segmenter: Segmenter, text: str) -> None:
    """Broken Unicode and clusters of many characters neither crash nor get cut."""
    check_tiling(segmenter, text)


# Single characters, then words and marks that mean something to one of the layers.
FRAGMENTS = st.one_of(
    st.sampled_from(".!?…。！？।؟;:,\"'“”«»「」()[]*_~`#|-•123abXY \n\t\r\0мส한👨🏽🇦"),
    st.sampled_from("\u0301\u200d\ufe0f\ud800\udfff\u202e\u2028\x85\u3000\xa0"),
    st.sampled_from(["\r\n", "\n\n", "```\n", "Dr. ", "e.g. ", "No. ", "U.S. ", "he ", "?!"]),
    st.sampled_from(["1. ", "a) ", "[1]", "    ", "今天", "です", "ก็", "ក្", "។ ", "мир ", "क्षि"]),
    st.sampled_from(["http://a.B/c?D", "x@Y.z", "word " * 10]),
)
TEXTS = st.one_of(
    st.lists(FRAGMENTS, max_size=60).map("".join),
    st.text(max_size=200),
    st.text(st.characters(exclude_categories=[]), max_size=200),
)


@pytest.mark.parametrize("segmenter", SEGMENTERS)
@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_any_text_is_tiled(segmenter: Segmenter, text: str) -> None:
    """Units tile any text, are not blank, and do not divide a grapheme cluster."""
    check_tiling(segmenter, text)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_no_sentence_is_only_marks(text: str) -> None:
    """A sentence has a letter, a digit or a symbol, unless the whole text has none."""
    content = regex.compile(r"[\p{L}\p{N}\p{S}\p{Co}]")
    units = pieces(sentences, text)
    assert len(units) < 2 or all(content.search(unit) for unit in units)


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_words_end_at_white_space(text: str) -> None:
    """No word has white space inside it, other than one that carries a combining mark."""
    for unit in pieces(words, text):
        clusters = regex.findall(r"\X", unit.strip())
        for before, after in pairwise(clusters):
            assert not before.isspace() or after[0].isspace()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("abC .!?", min_size=1).filter(lambda part: part.strip(" .!?")), min_size=1))
def test_blank_lines_end_sentences_and_paragraphs(parts: list[str]) -> None:
    """Every paragraph is one, and starts a sentence."""
    text = "\n\n".join(parts)
    starts = {start for start, _ in paragraphs(text)}
    assert len(starts) == len(parts)
    assert starts <= {start for start, _ in sentences(text)}


# Work on a text grows with its length, whatever it consists of. The bound is loose: a quadratic step
# takes sixteen times as long for four times the text, and seconds for one of these.
CATEGORIES: dict[str, list[str]] = {}
for _code in range(0x110000):
    CATEGORIES.setdefault(unicodedata.category(chr(_code)), []).append(chr(_code))
UNITS = [
    *".!?…。។།။๏\"'“”«»「」()[]*_`#|-•1aX \n\u0301\u200d\xad🎉🇦",
    "Dr. ",
    "1. ",
    ". \u200d",
    "x.Y",
    "ก็",
]


def repeated(draw: random.Random, size: int) -> tuple[str, str]:
    """A text of up to three repeated units of random characters, and one of a quarter of its length."""

    def unit() -> str:
        pick = [draw.choice(UNITS), draw.choice(CATEGORIES[draw.choice(sorted(CATEGORIES))])]
        return "".join(draw.choice(pick) for _ in range(draw.choice([1, 1, 2, 3])))

    units = [unit() for _ in range(draw.choice([1, 1, 2, 3]))]
    long, short = (
        "".join((each * length)[: length // len(units)] for each in units)
        for length in (size, size // 4)
    )
    return long, short


def took(segmenter: Segmenter, text: str) -> float:
    start = time.process_time()
    segmenter(text)
    return time.process_time() - start


@pytest.mark.parametrize("seed", range(60))
def test_time_grows_with_the_length(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(2):
        long, short = repeated(draw, 16_000)
        for segmenter in (sentences, words):
            if (slow := took(segmenter, long)) > 1.0:
                assert slow < 10 * took(segmenter, short), repr(long[:40])


@pytest.mark.parametrize("lead", ["", "a", "ក"])
@pytest.mark.parametrize(
    "mark", ["។", "།", "၊", "๏", "ๆ", "\u17d2", "\u0e31", "\u103a", "𖿢", "、", "\xad"]
)
def test_runs_of_marks_are_cut_in_a_moment(lead: str, mark: str) -> None:
    """Thirty thousand of them used to take twenty seconds."""
    text = lead + mark * 30_000
    for segmenter in (sentences, words):
        assert took(segmenter, text) < 4


@pytest.mark.parametrize(
    "text",
    [
        "." * 60_000 + "\n" + "a\n" * 30_000,
        " " * 100_000 + "a.b " * 20_000,
        "1." + " " * 100_000 + "Mme. A " * 10_000,
    ],
    ids=["marks, then lines", "spaces, then no cuts", "a number, spaces, then no cuts"],
)
def test_what_stands_before_is_not_read_again(text: str) -> None:
    assert took(sentences, text) < 20


REPEATED = ["a", "Hello there. ", "今天天气很好。", "สวัสดี", "(", '"A b. ', "!", "A. ", "\n", " "]
REPEATED.extend(["🇩", "line\n", "👨\u200d", "\u0301", '.") A', "a.B", "```\n", "\ud800. "])


@pytest.mark.parametrize("segmenter", SEGMENTERS)
@pytest.mark.parametrize("unit", REPEATED)
def test_long_texts_are_cut_whole(segmenter: Segmenter, unit: str) -> None:
    """Degenerate texts of a quarter of a megabyte; a quadratic step would never come back."""
    text = (unit * (2**18 // len(unit) + 1))[: 2**18]
    spans = segmenter(text)
    assert not spans or (spans[0][0], spans[-1][1]) == (0, len(text))


@pytest.mark.parametrize(
    "asks", ["Where is it?", "**Where is it?**", "(Where is it?)", "在哪里？", "Where?!"]
)
def test_questions(asks: str) -> None:
    text = f"It is red. {asks}"
    assert [text[start:end] for start, end in questions(text)] == [asks]
    assert not questions("He asked where it is.")
    assert not questions('"Where is it?" he said.')
