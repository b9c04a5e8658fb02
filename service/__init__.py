"""The HTTP service: tokenize, batch by length, run ONNX Runtime, answer JSON. Without torch."""

import os

# onnxruntime reports home by default since 1.29 and reads this at its first import.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
