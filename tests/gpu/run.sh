#!/bin/sh
# Proves the CUDA path on a host with an NVIDIA GPU and driver, in at most eight minutes:
#     tests/gpu/run.sh ARTEFACT...
# Each artefact has an fp16 variant (maskwright-export --add fp16 ARTEFACT, on any machine); give one of
# each mixer. Makes an environment of its own from the hash-locked requirements. Not yet run on a GPU.
set -eu
[ $# -gt 0 ] || { echo "tests/gpu/run.sh ARTEFACT..." >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"${PYTHON:-python3}" -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --require-hashes --requirement "$root/requirements/serve-gpu.txt"
"$place/venv/bin/pip" install --quiet --no-deps "$root"
PYTHONPATH=$root timeout 480 "$place/venv/bin/python" -m tests.gpu.check "$@"
