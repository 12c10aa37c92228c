# Sourced by the commands in this folder: finds a Python and sets up .venv in the project.
# Afterwards $root is the project's folder and $venv_python its Python.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv_python=$root/.venv/bin/python

# The first Python of at least 3.11. It is executed, because version managers install shims that do not work.
find_python() {
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "No Python of version 3.11 or newer is in PATH; install one (on Debian: apt-get install python3-venv)." >&2
    return 1
}

# set_up EXTRA: .venv with this project, editable, and one of its extras. Fast when nothing changed.
set_up() {
    local python
    python=$(find_python) || exit 1
    "$python" "$root/tools/_bootstrap.py" "$1" || exit 1
    # A shared cache of stevedore may list old drivers; this cache is removed together with .venv.
    export XDG_CACHE_HOME=$root/.venv/cache
}
