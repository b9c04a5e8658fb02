"""Facts as cloze questions: halves, phrasings, scores known by hand."""

import hashlib
import json
import lzma
from pathlib import Path

import pytest

from model.cloze import Fact, cloze, facts_of, phrasings_of
from tests.model.knowing import knowing, tokenizer_of

COUNTRIES = ["france", "italy", "spain", "peru", "cuba", "mali", "iran", "oman", "chad", "fiji"]
FACTS = [Fact("P36", f"{country}ia", country) for country in COUNTRIES]
PHRASINGS = {"P36": ["[X] and [Y] .", "[X] lies in [Y] ."]}
WORDS = " ".join(["and lies in .", *COUNTRIES, *(f"{country}ia" for country in COUNTRIES)])


def test_the_half_of_a_fact_is_told_by_its_sha1() -> None:
    for fact in FACTS:
        text = f"{fact.relation}\t{fact.subject}\t{fact.object}"
        assert fact.chooses == (int(hashlib.sha1(text.encode()).hexdigest(), 16) % 2 == 0)
    assert 0 < sum(fact.chooses for fact in FACTS) < len(FACTS)


def test_the_phrasing_that_does_best_on_one_half_is_scored_on_the_other() -> None:
    choosing = [fact for fact in FACTS if fact.chooses]
    scored = [fact for fact in FACTS if not fact.chooses]
    # It knows all of the one half, and two facts of the other, in the second phrasing only.
    known = [f"{fact.subject} lies in {fact.object} ." for fact in [*choosing, *scored[:2]]]
    found = cloze(knowing(tokenizer_of(WORDS), known), FACTS, PHRASINGS)
    assert (found.choosing.n_facts, found.choosing.top1) == (len(choosing), 1)
    assert found.hits.n_facts == len(scored)
    assert found.hits.top1 == 2 / len(scored)
    assert found.relations["P36"].phrasing == "[X] lies in [Y] ."
    assert found.relations["P36"].hits == found.hits
    assert (found.n_several_tokens, found.n_no_phrasing) == (0, 0)


def test_top10_counts_what_comes_after_likelier_guesses() -> None:
    fact = next(fact for fact in FACTS if not fact.chooses)
    others = [country for country in [*COUNTRIES, "lies", "in"] if country != fact.object]
    for n_before, (top1, top10) in {0: (1, 1), 1: (0, 1), 9: (0, 1), 10: (0, 0)}.items():
        guesses = [*others[:n_before], fact.object]
        known = [f"{fact.subject} and {country} ." for country in guesses]
        found = cloze(knowing(tokenizer_of(WORDS), known), [fact], PHRASINGS)
        assert (found.hits.top1, found.hits.top10) == (top1, top10)
        assert found.relations["P36"].phrasing == PHRASINGS["P36"][0]  # none to choose on


def test_facts_that_cannot_be_asked_are_left_out_and_counted() -> None:
    facts = [*FACTS, Fact("P36", "x", "franceitaly"), Fact("P99", "x", "peru")]
    found = cloze(knowing(tokenizer_of(WORDS), []), facts, PHRASINGS)
    assert (found.n_several_tokens, found.n_no_phrasing) == (1, 1)
    assert found.hits.n_facts + found.choosing.n_facts == len(FACTS)
    with pytest.raises(ValueError, match="none of 2 facts can be scored: 1 have an object of"):
        cloze(knowing(tokenizer_of(WORDS), []), facts[-2:], PHRASINGS)


def test_progress_is_told_of_each_relation() -> None:
    told: list[int] = []
    subject = knowing(tokenizer_of(WORDS), [])
    cloze(subject, [*FACTS, Fact("P99", "x", "peru")], PHRASINGS, tell=told.append)
    assert told == [1, 1]


def test_facts_are_read_from_json_lines_also_packed(tmp_path: Path) -> None:
    fields = {"relation": "P36", "subject": "Peru", "object": "Lima", "paragraphs": 3}
    text = json.dumps(fields) + "\n\n" + json.dumps(fields | {"object": "Cusco"}) + "\n"
    (tmp_path / "facts.jsonl.xz").write_bytes(lzma.compress(text.encode()))
    expected = [Fact("P36", "Peru", "Lima"), Fact("P36", "Peru", "Cusco")]
    assert facts_of(tmp_path / "facts.jsonl.xz") == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"relation": "P1", "subject": "a", "object": "b"}\n{', "line 2 is no JSON:"),
        ("[1]", "line 1 is no JSON object"),
        (
            '{"relation": "P1", "subject": "a"}',
            "line 1 has no text 'object'; wanted: relation, subject, object",
        ),
        ('{"relation": "P1", "subject": "a", "object": 3}', "line 1 has no text 'object'"),
    ],
)
def test_a_file_without_facts_is_refused_with_the_line(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "facts.jsonl").write_text(text)
    with pytest.raises(ValueError, match=f"facts.jsonl: {sentence}"):
        facts_of(tmp_path / "facts.jsonl")


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ([], "is no JSON object from relations to arrays of phrasings"),
        ({"P1": []}, "'P1' has no array of phrasings"),
        ({"P1": "[X] [Y]"}, "'P1' has no array of phrasings"),
        ({"P1": ["[X] is"]}, r"'P1': '\[X\] is' is no text with one \[X\], one \[Y\]"),
        ({"P1": ["[X] [Y] [Y]"]}, "is no text with one"),
    ],
)
def test_a_file_without_phrasings_is_refused(tmp_path: Path, found: object, sentence: str) -> None:
    (tmp_path / "patterns.json").write_text(json.dumps(found))
    with pytest.raises(ValueError, match=sentence):
        phrasings_of(tmp_path / "patterns.json")
