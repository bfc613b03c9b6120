# Sourced by the scripts beside it. From any bare Python 3.11 or newer,
#
#     set_up .venv torch dev
#
# makes the environment .venv with the extras `torch` and `dev` of pyproject.toml (nothing happens when it is already
# there) and leaves its interpreter in $python. Set PYTHON to choose the Python that new environments are made with.

find_python() {
    local candidate candidates=(python3 python python3.14 python3.13 python3.12 python3.11)
    [[ -n "${PYTHON:-}" ]] && candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    echo "headrace: no Python 3.11 or newer with the venv module among: ${candidates[*]}; install one, or set PYTHON to it" >&2
    return 1
}

set_up() {
    local base
    base="$(find_python)"
    python="$("$base" scripts/environment.py "$@")"
    # The tree itself is what runs; nothing has to be built first.
    export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
}

# install_programs openmpi-bin:mpirun chromium:chromium
#
# installs the packages whose programs are missing where that is allowed (root, apt-get), and says how to elsewhere.
install_programs() {
    local wanted packages=()
    for wanted in "$@"; do
        command -v "${wanted#*:}" >/dev/null || packages+=("${wanted%:*}")
    done
    [[ ${#packages[@]} -eq 0 ]] && return
    local install=(apt-get install -y --no-install-recommends "${packages[@]}")
    if [[ "$(id -u)" -eq 0 ]] && command -v apt-get >/dev/null; then
        echo "headrace: installing ${packages[*]}" >&2
        export DEBIAN_FRONTEND=noninteractive
        # (The lists of packages may be missing or old.)
        "${install[@]}" >/dev/null 2>&1 || { apt-get update && "${install[@]}"; } >/dev/null 2>&1 && return
    fi
    echo "headrace: ${packages[*]} could not be installed: what needs it is skipped; try: sudo ${install[*]}" >&2
}
