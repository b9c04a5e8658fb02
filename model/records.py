"""Files of evaluation data, read line by line; what is wrong is said with its place."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from model.corpus import from_files


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a UTF-8 file (`.xz` is unpacked) that are not blank, each after its place.

    Raises:
        ValueError: The file is not UTF-8, is empty, or is a damaged `.xz`.
    """
    for number, line in enumerate(from_files([path]).text.split("\n"), start=1):
        if line.strip():
            yield f"{path}: line {number}", line.rstrip("\r")


def objects_of(path: Path, fields: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """The objects of a JSON-lines file.

    Args:
        fields: What is read, and the names it may have in the file.

    Raises:
        ValueError: A line is no JSON object, or a field is missing or no text.
    """
    for where, line in lines_of(path):
        found, values = json_of(line, where), {}
        if not isinstance(found, dict):
            raise ValueError(f"{where} is no JSON object")
        for field, names in fields.items():
            value = next((found[name] for name in names if name in found), None)
            if not (isinstance(value, str) and value.strip()):
                wanted = ", ".join("/".join(each) for each in fields.values())
                raise ValueError(f"{where} has no text {names[0]!r}; wanted: {wanted}")
            values[field] = value
        yield values


def json_of(text: str, where: str) -> Any:
    """What a JSON text holds.

    Raises:
        ValueError: It is none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise ValueError(f"{where} is no JSON: {cause}") from None
