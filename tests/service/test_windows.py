"""Where the masks of a window stand in its text."""

import pytest

from model.tokenizer import Encoded, Tokenizer
from service.windows import keep_left, keep_right, window_of

TEXT = "é[MASK]\u0301 a  [MASK]\t[MASK]." + "x y " * 20 + "[MASK][MASK] to\u200d[MASK]!"


class Counting(Tokenizer):
    """A tokenizer that counts how often the places of a text's tokens are listed."""

    n_lists = 0

    def encode(self, text: str) -> Encoded:
        encoded = super().encode(text)

        def own() -> list[tuple[int, int]]:
            Counting.n_lists += 1
            return encoded.own()

        return Encoded(encoded.ids, encoded.find, own)


@pytest.mark.parametrize("kind", ["char", "bpe", "wordpiece"])
@pytest.mark.parametrize("room", [12, 500])
@pytest.mark.parametrize("keep", [keep_left, keep_right])
def test_a_mask_stands_where_its_token_does(
    tokenizers: dict[str, Tokenizer], kind: str, room: int, keep: object
) -> None:
    tokenizer = tokenizers[kind]
    window = window_of(TEXT, None, tokenizer, room=room, cut=True, keep=keep)
    columns = window.columns_of(tokenizer.mask_id)
    assert columns
    found = [window.find_mask(column) for column in columns]
    assert found == [window.spans[column] for column in columns]
    assert {TEXT[start:stop].strip() for start, stop in found} == {"[MASK]"}


def test_the_places_of_a_text_are_listed_once_for_all_its_masks(
    tokenizers: dict[str, Tokenizer],
) -> None:
    tokenizer = Counting.from_json(tokenizers["wordpiece"].to_json())
    window = window_of(TEXT, None, tokenizer, room=500, cut=True, keep=keep_left)
    for column in window.columns_of(tokenizer.mask_id) * 3:
        window.find_mask(column)
    assert Counting.n_lists == 1
