#!/bin/sh
# Resolves pyproject.toml's extras into the locked files beside this one (needs uv; see `make lock`).
# serve and serve-gpu carry hashes, as they go into images. dev and clients leave out what torch itself
# pins (its CUDA wheels): a CPU build of torch needs none of them.
set -eu
cd "$(dirname "$0")/.."
lock() {
    extra=$1
    shift
    uv pip compile pyproject.toml --quiet --extra "$extra" --universal --python-version 3.11 \
        --no-emit-index-url --custom-compile-command "make lock" \
        --output-file "requirements/$extra.txt" "$@"
}
lock serve --generate-hashes "$@"
lock serve-gpu --generate-hashes "$@"
lock dev --constraint requirements/serve.txt --no-annotate "$@"
lock clients --constraint requirements/serve.txt --no-annotate "$@"
uv pip compile requirements/optimum.in --quiet --universal --python-version 3.11 --no-annotate \
    --no-emit-index-url --custom-compile-command "make lock" --output-file requirements/optimum.txt
sed -i -E '/^(nvidia-|cuda-|triton==|onnxruntime-gpu)/d' requirements/dev.txt \
    requirements/clients.txt requirements/optimum.txt
