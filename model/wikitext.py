"""Wikitext to plain paragraphs: what a reader of the article sees as prose, and nothing else."""

import bz2
import html
import io
import re
from collections.abc import Callable, Iterator
from xml.etree import ElementTree

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_NOTE = re.compile(
    r"<(ref|math|gallery|timeline|code|pre|table|score|syntaxhighlight|imagemap)\b"
    r"[^>/]*?(?:/>|>.*?</\1\s*>)",
    re.DOTALL | re.IGNORECASE,
)
_TAG = re.compile(r"<[^<>]{1,200}>")
_TEMPLATE = re.compile(r"\{\{([^{}]*)\}\}")
_TABLE = re.compile(r"\{\|(?:(?!\{\|).)*?\|\}", re.DOTALL)
_FILE = re.compile(
    r"\[\[(?:File|Image|Category|[a-z-]{2,12}):(?:[^\[\]]|\[\[[^\[\]]*\]\])*\]\]", re.IGNORECASE
)
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_OUTWARD = re.compile(r"\[(?:https?:|ftp:|//)\S+\s*([^\]]*)\]")
_BOLD = re.compile(r"'{2,5}")
_NOT_PROSE = ("=", "*", "#", ":", ";", "|", "{", "!", "}", "<", "[")
# Templates whose content a reader sees: which of their arguments.
_SHOWN = {
    "lang": 2,
    "transl": 2,
    "transliteration": 2,
    "nowrap": 1,
    "convert": 1,
    "cvt": 1,
    "circa": 1,
    "c.": 1,
    "as of": 1,
    "abbr": 1,
    "small": 1,
    "nihongo": 1,
    "sic": 1,
}


def articles(packed: bytes) -> Iterator[str]:
    """The wikitext of each article of a packed dump; redirects and other pages are left out."""
    namespace, text = "", ""
    for _, element in ElementTree.iterparse(io.BytesIO(bz2.decompress(packed))):
        tag = element.tag.rpartition("}")[2]
        if tag == "ns":
            namespace = element.text or ""
        elif tag == "text":
            text = element.text or ""
        elif tag == "page":
            if namespace == "0" and not text.lstrip()[:9].upper().startswith("#REDIRECT"):
                yield text
            element.clear()


def prose(wikitext: str) -> Iterator[str]:
    """The paragraphs of an article that end as sentences do."""
    text = _NOTE.sub("", _COMMENT.sub("", html.unescape(wikitext)))
    text = _innermost_first(_TEMPLATE, _shown, text)
    text = _innermost_first(_TABLE, lambda _: "", text)
    text = _FILE.sub("", text)
    text = _innermost_first(_LINK, lambda link: link[1], text)
    text = _TAG.sub(" ", _BOLD.sub("", _OUTWARD.sub(r"\1", text)))
    for line in text.splitlines():
        line = line.strip()
        if line and not line.startswith(_NOT_PROSE) and line[-1] in ".!?\"')" and "{{" not in line:
            yield line


def _shown(template: re.Match[str]) -> str:
    name, *arguments = (part.strip() for part in template[1].split("|"))
    name = name.lower()
    index = 2 if name.startswith("lang-") else _SHOWN.get(name, 0)
    if name.startswith("lang-"):
        index = 1
    plain = [argument for argument in arguments if "=" not in argument]
    if not 0 < index <= len(plain):
        return ""
    if name in ("convert", "cvt"):
        return " ".join(plain[:2])
    return plain[index - 1]


def _innermost_first(
    pattern: re.Pattern[str], by: Callable[[re.Match[str]], str], text: str
) -> str:
    while True:
        text, n_found = pattern.subn(by, text)
        if not n_found:
            return text
