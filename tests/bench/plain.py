"""The server to beat: FastAPI on one 1-thread session of our graph, a text a run, no batches.

What a competent engineer writes in an hour; it gives the numbers that ours gives. `ARTEFACT` names
the artefact's directory: `ARTEFACT=… uvicorn tests.bench.plain:app --port 0 --no-access-log`.
"""

import os
from collections.abc import Sequence
from pathlib import Path

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnxruntime as ort
import orjson
from fastapi import FastAPI, Response
from numpy.typing import NDArray
from pydantic import BaseModel
from tokenizers import Tokenizer

TOP_K = 5

artefact = Path(os.environ["ARTEFACT"])
tokenizer = Tokenizer.from_file(str(artefact / "tokenizer.json"))
mask = tokenizer.token_to_id("[MASK]")
# A vocabulary of characters has neither.
start, end = (
    [i] if (i := tokenizer.token_to_id(t)) is not None else [] for t in ("[CLS]", "[SEP]")
)
options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession(artefact / "encode.onnx", options, ["CPUExecutionProvider"])
app = FastAPI()


class Body(BaseModel):
    """Texts, each short enough for the model."""

    inputs: list[str]


def rows_of(texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Padded ids, and lengths."""
    encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    ids = [[*start, *encoding.ids, *end] for encoding in encoded]
    rows = np.zeros((len(ids), max(map(len, ids))), np.int64)
    for row, found in zip(rows, ids, strict=True):
        row[: len(found)] = found
    return rows, np.array([len(found) for found in ids], np.int64)


def reply(value: object) -> Response:
    """JSON, arrays included."""
    content = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, media_type="application/json")


@app.post("/embed")
def embed(body: Body) -> Response:
    """The mean of each text's tokens, of length 1."""
    ids, lengths = rows_of(body.inputs)
    inputs = {"input_ids": ids, "lengths": lengths, "mask_positions": np.zeros((0, 2), np.int64)}
    (pooled,) = session.run(["pooled_mean"], inputs)
    return reply(pooled / np.linalg.norm(pooled, axis=1, keepdims=True))


@app.post("/fill-mask")
def fill_mask(body: Body) -> Response:
    """The five likeliest tokens of each mask."""
    ids, lengths = rows_of(body.inputs)
    positions = np.argwhere(ids == mask)
    inputs = {"input_ids": ids, "lengths": lengths, "mask_positions": positions}
    logprobs, tokens = session.run(["top_logprobs", "top_ids"], inputs)
    scores = np.exp(logprobs[:, :TOP_K]).tolist()
    found = [
        [
            {"score": score, "token": token, "token_str": tokenizer.id_to_token(token)}
            for score, token in zip(*mask_row, strict=True)
        ]
        for mask_row in zip(scores, tokens[:, :TOP_K].tolist(), strict=True)
    ]
    return reply(found)
