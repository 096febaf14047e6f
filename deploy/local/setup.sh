#!/bin/sh
# Prepares this machine: Python packages in .venv, a Java, the jars in .jars. It needs only a Python 3.11 or
# newer. `make` calls it before every target, so it is quick and prints nothing when there
# is nothing to do. It uses $PYTHON and $JAVA_HOME if they are set; MAVEN_CENTRAL is a mirror of the jars.
set -eu
cd "$(dirname "$0")/../.."

UV_VERSION=0.13.8
STAMP=.tools/ready

main() {
  if is_ready; then return; fi
  forget_a_moved_folder
  python=$(find_python)
  say "Python: $python"
  make_tools "$python"
  say "Python packages into .venv (about 600 MB the first time)"
  sync_packages "$python"
  ensure_java
  .venv/bin/streamjoin setup
  stamp >"$STAMP"
  say "Ready."
}

# Content hash and location of the last set-up; another value starts a new one.
stamp() {
  pwd
  cksum pyproject.toml uv.lock jars.toml deploy/local/setup.sh job/join/*.java job/writer/*.java \
    job/encoding/*.java job/sql/*.java
}

is_ready() {
  [ -f "$STAMP" ] && [ "$(stamp)" = "$(cat "$STAMP")" ] &&
    [ -x .venv/bin/python ] && [ -d .jars/spark ] && [ -d .jars/kafka ] &&
    [ -x "$(cat .tools/java_home 2>/dev/null)/bin/java" ]
}

# The programs in .venv and .tools contain the name of their folder; in a copied or renamed one they do not run.
forget_a_moved_folder() {
  if [ -f "$STAMP" ] && [ "$(head -n 1 "$STAMP")" != "$PWD" ]; then
    rm -rf .tools .venv
  fi
}

find_python() {
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
    # Run it: version managers leave names on the PATH that start no program.
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  fail "Streamjoin needs Python 3.11 or newer, and ${PYTHON:-none of python3, python3.11 to python3.14} is${PYTHON:+ not} one.
Install one, or set its path:  make setup PYTHON=/path/to/python3.11
  Debian 12, Ubuntu 24.04 and newer:  sudo apt-get install python3 python3-venv
  Fedora, RHEL 9:                     sudo dnf install python3.12
  macOS:                              brew install python@3.12"
}

# uv installs exactly the versions of uv.lock. It gets its own virtual environment.
make_tools() {
  if [ -x .tools/bin/uv ] && [ "$(.tools/bin/uv --version | cut -d' ' -f2)" = "$UV_VERSION" ]; then
    return
  fi
  say "uv $UV_VERSION into .tools"
  "$1" -c 'import ensurepip, venv' 2>/dev/null || install_venv "$1"
  "$1" -m venv --clear .tools
  quietly .tools/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
}

# Debian and Ubuntu package venv separately from Python.
install_venv() {
  package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  can_apt || fail "$1 cannot make virtual environments. On Debian and Ubuntu:
  sudo apt-get install $package
Then run \`make setup\` again."
  say "$package through apt-get"
  apt_install "$package" || fail "apt-get could not install $package, which $1 needs to make virtual environments."
}

sync_packages() {
  UV_PROJECT_ENVIRONMENT=.venv quietly .tools/bin/uv sync --frozen --quiet --extra job \
    --python "$1" --no-python-downloads
}

ensure_java() {
  mkdir -p .tools
  # The file may contain a Java that no longer exists: JAVA_HOME and this machine are checked again.
  rm -f .tools/java_home
  if ! .venv/bin/python -m job.installation.java >/dev/null 2>&1 && can_apt; then
    say "Java through apt-get"
    # Debian and Ubuntu releases have different ones of these: try each.
    apt_install openjdk-17-jre-headless 2>/dev/null ||
      apt_install openjdk-21-jre-headless 2>/dev/null ||
      apt_install default-jre-headless || true
  fi
  # If there is still none, this prints how to install one.
  home=$(.venv/bin/python -m job.installation.java)
  printf '%s\n' "$home" >.tools/java_home
}

can_apt() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null
}

apt_install() {
  [ -n "${apt_updated:-}" ] || quietly apt-get update -qq || return
  apt_updated=yes
  DEBIAN_FRONTEND=noninteractive quietly apt-get install -qq -y --no-install-recommends "$1"
}

# The output of a tool is printed only if it fails.
quietly() {
  if ! output=$("$@" 2>&1); then
    printf '%s\n' "$output" >&2
    return 1
  fi
}

say() {
  printf '%s\n' "$*"
}

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

main
