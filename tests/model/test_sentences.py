"""Sentences of a text: where they end, which are taken."""

import pytest

from model.corpus import Corpus
from model.sentences import frequent_words, sampled_sentences, sentences_of
from model.streams import StreamedCorpus

LINES = [f"This is line {i} of a text. It has two sentences ({i})." for i in range(200)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("One is here. Two is there.", ["One is here.", "Two is there."]),
        ('He said "no." Then he left!', ['He said "no."', "Then he left!"]),
        (
            "About 3.5 m long. 12 of them were e.g. blue.",
            ["About 3.5 m long.", "12 of them were e.g. blue."],
        ),
        ("  no mark at all ", ["no mark at all"]),
        ("", []),
    ],
)
def test_a_line_is_cut_after_marks_before_a_beginning(line: str, expected: list[str]) -> None:
    assert sentences_of(line) == expected


def test_sentences_are_a_sample_that_hangs_on_no_order_and_no_cut() -> None:
    lines = [*LINES, "Too short.", "word " * 61 + "and so on."]
    text = Corpus("x", "\n".join(lines * 2) + "\n" + "." * 2000, "none")
    pieces = ["\n".join(lines[100:]) + "\n", "\n".join(lines[:100]) + "\n", "." * 2000]
    streamed = StreamedCorpus("y", lambda: iter(pieces), "none")
    found = sampled_sentences(text, n=90)
    assert found == sampled_sentences(streamed, n=90)
    assert found[:20] == sampled_sentences(text, n=20)
    assert len(set(found)) == 90
    assert all(4 <= len(sentence.split()) <= 60 for sentence in found)
    assert len(sampled_sentences(text, n=1000)) == 400


def test_a_text_without_sentences_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="x has no sentence of 4 to 60 words"):
        sampled_sentences(Corpus("x", "One word.\n" * 9, "none"), n=9)


def test_frequent_words_come_by_how_often_they_are_met_whatever_their_case() -> None:
    sentences = ["The sea, the SEA and the café.", "An owl: 100 owls_of the sea"]
    assert frequent_words(sentences, n=4) == ["the", "sea", "and", "café"]
    assert frequent_words([], n=4) == []
