"""What a teacher makes of a text's sentences: what the stage of embeddings learns from."""

from collections.abc import Callable
from pathlib import Path

from model.corpus import Text
from model.embedding import Lesson
from model.sentences import frequent_words, sampled_sentences
from model.teacher import Teacher, kept_vectors, teacher_directory

SENTENCES_TO_A_WORD = 5


def lesson(
    text: Text,
    teacher: str,
    *,
    n_sentences: int,
    cache: Path | None = None,
    tell: Callable[[int, int], None] = lambda n_done, n_sentences: None,
) -> Lesson:
    """A teacher's vectors of sentences of a text, and of their most frequent words.

    A word is three tokens with its [CLS] and [SEP], a sentence some twenty; and what a word means
    is a part of every sentence with it.

    Args:
        teacher: A directory, or a name in `model.teacher.TEACHERS`.

    Raises:
        ValueError: The teacher cannot be had or loaded, or the text has no sentences.
    """
    found = Teacher(teacher_directory(teacher, cache=cache))
    sentences = sampled_sentences(text, n=n_sentences)
    n_drawn = len(sentences)
    sentences += frequent_words(sentences, n=n_drawn // SENTENCES_TO_A_WORD)
    vectors = kept_vectors(found, sentences, cache=cache, tell=tell)
    facts = {
        "teacher": {"name": Path(teacher).name, "sha256": found.sha256, "d": vectors.shape[1]},
        "sentences": n_drawn,
        "words": len(sentences) - n_drawn,
    }
    return Lesson(sentences, vectors, facts)
