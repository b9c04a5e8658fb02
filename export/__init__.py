"""From checkpoints to artefacts: ONNX graphs, one weights file, a manifest, a proof of parity."""

import os

# onnxruntime reports home by default since 1.29 and reads this at its first import.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
