"""What a teacher makes of a text's sentences: what the stage of embeddings learns from."""

from collections.abc import Callable
from pathlib import Path

from model.corpus import Text
from model.embedding import Lesson
from model.sentences import sampled_sentences
from model.teacher import Teacher, kept_vectors, teacher_directory


def lesson(
    text: Text,
    teacher: str,
    *,
    n_sentences: int,
    cache: Path | None = None,
    tell: Callable[[int, int], None] = lambda n_done, n_sentences: None,
) -> Lesson:
    """A teacher's vectors of sentences of a text.

    Args:
        teacher: A directory, or a name in `model.teacher.TEACHERS`.

    Raises:
        ValueError: The teacher cannot be had or loaded, or the text has no sentences.
    """
    found = Teacher(teacher_directory(teacher, cache=cache))
    sentences = sampled_sentences(text, n=n_sentences)
    vectors = kept_vectors(found, sentences, cache=cache, tell=tell)
    facts = {
        "teacher": {"name": Path(teacher).name, "sha256": found.sha256, "d": vectors.shape[1]},
        "sentences": len(sentences),
    }
    return Lesson(sentences, vectors, facts)
