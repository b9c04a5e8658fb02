"""`optimum_side.py DIRECTORY TEXT`: what optimum's ONNX Runtime classes make of an export, as JSON.

Runs in an environment of its own: optimum wants an older transformers than the other clients.
"""

import json
import sys

import torch
from optimum.onnxruntime import ORTModelForFeatureExtraction, ORTModelForMaskedLM
from transformers import AutoTokenizer, pipeline

directory, text = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(directory)
model = ORTModelForMaskedLM.from_pretrained(directory)
candidates = pipeline("fill-mask", model=model, tokenizer=tokenizer)(text, top_k=5)
encoder = ORTModelForFeatureExtraction.from_pretrained(directory)
encoded = tokenizer([text, "padded"], padding=True, return_tensors="pt")
hidden = encoder(**encoded).last_hidden_state
real = encoded["attention_mask"].unsqueeze(2)
vectors = torch.nn.functional.normalize((hidden * real).sum(dim=1) / real.sum(dim=1), dim=1)
print(json.dumps({"candidates": candidates, "vector": vectors[0].tolist()}))  # noqa: T201 what the test reads
