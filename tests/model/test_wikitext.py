"""Wikitext as its readers see it."""

import bz2

import pytest

from model.wikitext import articles, prose

PAGE = "<page><title>{title}</title><ns>{ns}</ns><revision><text>{text}</text></revision></page>"


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("'''Autism''' is a ''disorder''.", "Autism is a disorder."),
        ("See [[Paris|the city]] and [[Rome]].", "See the city and Rome."),
        ("It is so.<ref name=x>{{cite|a=b}} p. 3</ref><ref name=y /> Yes.", "It is so. Yes."),
        ("Some{{citation needed|date=May {{a}}}} say so.", "Some say so."),
        ("It is {{convert|5|km|mi}} long.", "It is 5 km long."),
        ("The {{lang|fr|rue}} is {{lang-de|Weg}}.", "The rue is Weg."),
        ("A [http://x.org page] is here.", "A page is here."),
        ("Seen<!-- not\nthis --> here.", "Seen here."),
        ("[[File:A.jpg|thumb|a [[map]] of it]]It is here.", "It is here."),
        ("{| class=x\n| cell.\n{|\n| inner.\n|}\n|}\nAfter it.", "After it."),
        ("&lt;b&gt;Bold&lt;/b&gt; words.", "Bold words."),
    ],
)
def test_markup_is_taken_away(wikitext: str, text: str) -> None:
    assert [" ".join(line.split()) for line in prose(wikitext)] == [text]


def test_headings_lists_and_what_ends_as_no_sentence_are_left_out() -> None:
    text = "== History. ==\n* item.\n# first.\n: indented.\nNo stop here\nA sentence.\n"
    assert list(prose(text)) == ["A sentence."]


def test_redirects_and_pages_that_are_no_articles_are_left_out() -> None:
    pages = [("A", 0, "First."), ("B", 0, "#redirect [[A]]"), ("Talk:A", 1, "Second.")]
    dump = "".join(PAGE.format(title=title, ns=ns, text=text) for title, ns, text in pages)
    packed = bz2.compress(f"<mediawiki xmlns='http://x/'>{dump}</mediawiki>".encode())
    assert list(articles(packed)) == ["First."]
