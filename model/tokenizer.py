"""Text to ids with offsets, and back into the caller's own text. Imports no torch.

One `tokenizer.json` of the Hugging Face `tokenizers` library holds everything. `[MASK]` in a text
is the mask; every other special token written out in a text is ordinary text, so that no client
can send padding or a separator.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

PAD, UNKNOWN, MASK, START, END = "[PAD]", "[UNK]", "[MASK]", "[CLS]", "[SEP]"
SPECIALS = (PAD, UNKNOWN, MASK, START, END)
# Of WordPiece: a page of many languages has thousands of characters, each an id, most of no use.
LARGEST_ALPHABET = 256


@dataclass(frozen=True, eq=False)
class Encoded:
    """A text as token ids and where each came from, in code points of the text.

    Args:
        find: Finds the places: not all who want ids want them.
        own: Finds them without what the vocabulary drops beside a token, which no mask takes over.
    """

    ids: list[int]
    find: Callable[[], list[tuple[int, int]]]
    own: Callable[[], list[tuple[int, int]]]

    @cached_property
    def offsets(self) -> list[tuple[int, int]]:
        """Start and end of each token."""
        return self.find()


class Tokenizer:
    """Ids, offsets and surfaces of one vocabulary.

    Attributes:
        prefix, suffix: Ids that stand before and after every text ([CLS], [SEP]); empty for
            characters.
        special_ids: Ids that are no text, among them `pad_id`, `mask_id` and `unknown_id`.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        # Written-out special tokens are text; [MASK] is registered as an ordinary added token.
        backend.encode_special_tokens = True
        missing = [token for token in (PAD, UNKNOWN, MASK) if backend.token_to_id(token) is None]
        if missing:
            raise ValueError(f"tokenizer.json lacks {', '.join(missing)}")
        (self.pad_id,) = _ids_of(backend, PAD)
        (self.unknown_id,) = _ids_of(backend, UNKNOWN)
        (self.mask_id,) = _ids_of(backend, MASK)
        self._surfaces: dict[int, str] = {}  # of tokens that were asked for
        self.prefix = _ids_of(backend, START)
        self.suffix = _ids_of(backend, END)
        self.special_ids = frozenset(
            {self.pad_id, self.unknown_id, self.mask_id, *self.prefix, *self.suffix}
        )

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """A tokenizer from the text of a `tokenizer.json`."""
        try:
            backend = Backend.from_str(text)
        except Exception as cause:  # the library raises bare Exception
            raise ValueError(f"tokenizer.json cannot be read: {cause}") from cause
        return cls(backend)

    def to_json(self) -> str:
        """The text of a `tokenizer.json`."""
        return self._backend.to_str()

    @property
    def vocab_size(self) -> int:
        """Number of ids, specials included."""
        return self._backend.get_vocab_size()

    @cached_property
    def kind(self) -> str:
        """Its name in `TRAINERS`."""
        return {"WordLevel": "char", "BPE": "bpe", "WordPiece": "wordpiece"}[
            type(self._backend.model).__name__
        ]

    def encode(self, text: str) -> Encoded:
        """The tokens of a text, without prefix and suffix.

        Their spans are in order, cover all that is no space, and do not overlap, but for the pieces
        of one code point, which share it. What a vocabulary drops (an accent, a control character)
        belongs to the token it follows; only what stands beside a lone mask may belong to none.
        """
        encoding = self._backend.encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        own = partial(getattr, encoding, "offsets")
        if self.kind != "wordpiece":
            return Encoded(ids, own, own)
        return Encoded(ids, lambda: _covering(text, ids, own(), self.mask_id), own)

    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, without prefix and suffix, on every core."""
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_corpus(self, text: str) -> NDArray[np.int64]:
        """The ids of a long text, line by line.

        A line is a text by itself, so each that is not blank ends with the suffix: a model then
        learns where a text begins and that what comes before is another matter.
        """
        if self.kind == "char" and MASK not in text:
            return self._characters(text)
        lines = text.splitlines(keepends=True)
        encodings = self._backend.encode_batch_fast(lines, add_special_tokens=False)
        if not encodings:
            return np.zeros(0, np.int64)
        return np.concatenate(
            [
                np.asarray(encoding.ids + (self.suffix if line.strip() else []), np.int64)
                for line, encoding in zip(lines, encodings, strict=True)
            ]
        )

    def _characters(self, text: str) -> NDArray[np.int64]:
        """What the backend gives for a text of characters, fifty times as fast."""
        table = self._id_of_code_point
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        return table[np.minimum(points, len(table) - 1)]

    @cached_property
    def _id_of_code_point(self) -> NDArray[np.int64]:
        """Ids by code point; the last entry, and every one between, is unknown."""
        vocabulary = self._backend.get_vocab(with_added_tokens=False)
        known = {ord(token): i for token, i in vocabulary.items() if len(token) == 1}
        table = np.full(max(known, default=0) + 2, self.unknown_id, np.int64)
        table[list(known)] = list(known.values())
        return table

    def wrap(self, ids: Sequence[int]) -> list[int]:
        """The ids of a text between prefix and suffix, as the model reads them."""
        return [*self.prefix, *ids, *self.suffix]

    @property
    def n_wrap(self) -> int:
        """Number of ids that `wrap` adds."""
        return len(self.prefix) + len(self.suffix)

    def token_str(self, token_id: int) -> str:
        """A token as a reader sees it alone; a WordPiece continuation keeps its `##`."""
        found = self._surfaces.get(token_id)
        if found is None:
            found = self._backend.decode([token_id], skip_special_tokens=False)
            self._surfaces[token_id] = found
        return found

    def is_partial(self, token_id: int) -> bool:
        """Whether a token is only some bytes of a character, which `token_str` shows as U+FFFD."""
        if self.kind != "bpe":
            return False
        # The bytes of a whole U+FFFD, as byte-level BPE writes them.
        whole = (self._backend.id_to_token(token_id) or "").count("\u00ef\u00bf\u00bd")
        return self.token_str(token_id).count("\ufffd") > whole

    def target_ids(self, surface: str) -> tuple[int, ...]:
        """The tokens of a surface; none where it is empty or has a part without a token."""
        ids = self.encode(surface).ids
        return () if self.special_ids.intersection(ids) else tuple(ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of several tokens; [MASK] is text."""
        if len(ids) == 1 and not skip_special_tokens:
            return self.token_str(ids[0])
        return self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def splice(self, text: str, span: tuple[int, int], ids: Sequence[int]) -> str:
        """`text` with tokens in place of `span`; a continuation joins the word before it."""
        piece, before = self.decode(ids), text[: span[0]]
        if ids[0] in self._continuations:
            piece, before = piece.removeprefix("##"), before.rstrip()
        return before + piece + text[span[1] :]

    @cached_property
    def _continuations(self) -> frozenset[int]:
        if self.kind != "wordpiece":
            return frozenset()
        vocabulary = self._backend.get_vocab(with_added_tokens=False)
        return frozenset(i for token, i in vocabulary.items() if token.startswith("##"))


def train_char(texts: Iterable[str], *, vocab_size: int = 0) -> Tokenizer:
    """One token per code point of the texts; `vocab_size` is what they have."""
    characters = sorted(set().union(*map(set, texts)))
    vocabulary = {token: i for i, token in enumerate([PAD, UNKNOWN, MASK, *characters])}
    backend = Backend(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    backend.decoder = decoders.Fuse()
    return _with_specials(backend, specials=(PAD, UNKNOWN))


def train_bpe(texts: Iterable[str], *, vocab_size: int) -> Tokenizer:
    """Byte-level BPE: every text has tokens, none is unknown; case and spaces are kept."""
    backend = Backend(models.BPE(unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_lines(texts), trainer)
    # A word's token holds the space before it, so the mask does as well.
    return _with_specials(backend, specials=(PAD, UNKNOWN, START, END), mask_takes_space=True)


def train_wordpiece(
    texts: Iterable[str], *, vocab_size: int, words: Iterable[str] = ()
) -> Tokenizer:
    """Uncased WordPiece, as BERT's.

    Args:
        words: Such as must be one token each: they stand in place of the last ones learnt. Case and
            accents do not count; what is several words is left to the pieces.

    Raises:
        ValueError: `vocab_size` has no room for `words`.
    """
    backend = Backend(models.WordPiece(unk_token=UNKNOWN))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    lines = list(_lines(texts))
    alphabet, continuations = _alphabet(backend, lines)
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        # The trainer numbers continuations, and so breaks ties, in an order of its own each time,
        # unless it is given them.
        special_tokens=[*SPECIALS, *continuations],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    backend.train_from_iterator(lines, trainer)
    given = [*SPECIALS, *continuations, *alphabet]
    backend.model = models.WordPiece(
        _with_words(backend, words, keep=given), unk_token=UNKNOWN, max_input_chars_per_word=100
    )
    return _with_specials(backend, specials=(PAD, UNKNOWN, START, END))


def _alphabet(backend: Backend, lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """The most frequent characters, and those within words as continuations; both in order."""
    # Splitting at spaces first leaves few distinct strings to look into.
    spaced: Counter[str] = Counter()
    for line in lines:
        spaced.update(backend.normalizer.normalize_str(line).split())
    counts: Counter[str] = Counter()
    within: set[str] = set()
    for string, n in spaced.items():
        for word, _ in backend.pre_tokenizer.pre_tokenize_str(string):
            within.update(word[1:])
            for character in word:
                counts[character] += n
    frequent = sorted(counts, key=lambda character: (-counts[character], character))
    alphabet = sorted(frequent[:LARGEST_ALPHABET])
    return alphabet, [f"##{character}" for character in alphabet if character in within]


def _with_words(backend: Backend, words: Iterable[str], *, keep: Iterable[str]) -> dict[str, int]:
    """The vocabulary learnt, its last pieces replaced by those of `words` that it lacks."""
    vocabulary = backend.get_vocab(with_added_tokens=False)
    plain = {backend.normalizer.normalize_str(word) for word in words}
    whole = {word for word in plain if len(backend.pre_tokenizer.pre_tokenize_str(word)) == 1}
    missing = sorted(whole - vocabulary.keys())
    learnt = sorted(vocabulary.keys() - set(keep) - whole, key=vocabulary.__getitem__)
    if len(missing) > len(learnt):
        raise ValueError(
            f"vocab_size={len(vocabulary)} has room for {len(learnt)} of {len(missing)} words; "
            "give it more"
        )
    for word, piece in zip(missing, learnt[len(learnt) - len(missing) :], strict=True):
        vocabulary[word] = vocabulary.pop(piece)
    return vocabulary


def _with_specials(
    backend: Backend, *, specials: Sequence[str], mask_takes_space: bool = False
) -> Tokenizer:
    # Training registers its special tokens, the mask too; rebuilding from the model drops that,
    # and the mask alone comes back as an ordinary added token.
    clean = Backend(backend.model)
    clean.normalizer, clean.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    clean.decoder = backend.decoder
    clean.add_special_tokens([AddedToken(token, special=True) for token in specials])
    mask = AddedToken(MASK, special=False, normalized=False, lstrip=mask_takes_space)
    clean.add_tokens([mask])
    return Tokenizer(clean)


def _lines(texts: Iterable[str]) -> Iterable[str]:
    return (line for text in texts for line in text.splitlines(keepends=True))


def _covering(
    text: str, ids: Sequence[int], offsets: Sequence[tuple[int, int]], mask_id: int
) -> list[tuple[int, int]]:
    """The spans, widened over what the normalizer dropped between them; a mask's stays its own."""
    starts, stops = [start for start, _ in offsets], [stop for _, stop in offsets]
    end = 0
    for i, start in enumerate([*starts, len(text)]):
        if (gap := text[end:start]).strip():
            split = 0
            takes_after = i < len(ids) and ids[i] != mask_id
            if i and ids[i - 1] != mask_id:  # it takes what touches it, or all
                spaces = (at for at, character in enumerate(gap) if character.isspace())
                split = next(spaces, len(gap)) if takes_after else len(gap)
                stops[i - 1] += len(gap[:split].rstrip())
            if takes_after and (rest := gap[split:].lstrip()):
                starts[i] -= len(rest)
        end = offsets[i][1] if i < len(ids) else end
    return list(zip(starts, stops, strict=True))


def _ids_of(backend: Backend, token: str) -> list[int]:
    found = backend.token_to_id(token)
    return [] if found is None else [found]


TRAINERS: dict[str, Callable[..., Tokenizer]] = {
    "char": train_char,
    "bpe": train_bpe,
    "wordpiece": train_wordpiece,
}
