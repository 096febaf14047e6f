#!/usr/bin/env bash
# `make test-docker`: installs what this machine lacks, then runs tests/docker.
#
# - A Docker engine and Compose: as root on Debian they are installed, and the engine runs while the tests
#   run. Elsewhere the tests are skipped with a message.
# - Images, if no registry is reachable: a Debian made by debootstrap, and on it a Kafka from the jars of
#   jars.toml and Debian's own Prometheus (tests/docker/stand_ins).
#
# Results of long steps are kept in ~/.cache/streamjoin. Arguments are passed to pytest.
set -euo pipefail
cd "$(dirname "$0")/../.."

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/streamjoin
DEBIAN=bookworm
# The oldest engine that supports Compose v2.
COMPOSE_DEBIAN=trixie
DEBIAN_MIRROR=http://deb.debian.org/debian
DEBIAN_KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
# Next to the system's own bundle, which an update of its package would replace.
CA_INSIDE=/etc/ssl/certs/of-the-machine.pem
ENGINE_SECONDS=60
PULL_SECONDS=120

main() {
  mkdir -p "$CACHE"
  trap clean_up EXIT
  engine_if_missing
  if docker info >/dev/null 2>&1; then
    compose_if_missing
    # In `if`, not after `||`: bash ignores failures inside a function called before `||`.
    if ! registry_answers; then
      stand_in_base
      stand_ins
    fi
  elif [ -n "${EVERY_TEST:-}" ]; then
    exit 1
  fi
  # With FULL=1 a pass is recorded (tests/groups.py).
  .venv/bin/pytest -p tests.group_runs --groups "$([ -n "${FULL:-}" ] && echo all || echo selected)" tests/docker "$@"
}

clean_up() {
  [ -z "${scratch:-}" ] || rm -rf "$scratch"
  [ -z "${engine:-}" ] || { kill "$engine" && wait "$engine" 2>/dev/null || true; }
}

# The engine

# If there is none in the end, it prints the reason.
engine_if_missing() {
  if docker info >/dev/null 2>&1; then return; fi
  if ! command -v dockerd >/dev/null; then
    if ! can_apt; then
      warn "There is no Docker engine here, and only root on Debian can install one." \
        "Install it yourself: https://docs.docker.com/engine/install/"
      return
    fi
    say "Docker through apt-get"
    if ! apt_install docker.io iptables; then
      warn "There is no Docker engine here, and apt-get cannot install docker.io: see above."
      return
    fi
  fi
  if [ "$(id -u)" != 0 ]; then
    warn "No Docker engine runs here, and only root can start one: sudo systemctl start docker"
    return
  fi
  # overlay2 if the file system supports it, which the engine detects; vfs works everywhere.
  if ! start_engine && ! start_engine --storage-driver=vfs; then
    warn "The Docker engine is installed and does not start; above is the end of its log" \
      "($CACHE/dockerd.log). It needs the right to set up networks (iptables), mounts and cgroups:" \
      "in a container, --privileged."
  fi
}

start_engine() {
  say "dockerd $*"
  dockerd "$@" >"$CACHE/dockerd.log" 2>&1 &
  engine=$!
  for _ in $(seq "$((ENGINE_SECONDS * 5))"); do
    if docker info >/dev/null 2>&1; then return; fi
    if ! kill -0 "$engine" 2>/dev/null; then break; fi
    sleep 0.2
  done
  kill "$engine" 2>/dev/null && wait "$engine" || true
  engine=
  grep -v 'level=\(info\|warning\)' "$CACHE/dockerd.log" | tail -n 5 >&2
  return 1
}

# Debian 12 has no Compose v2. The one of the next Debian is a single program, which needs no newer
# libc; apt, with a separate list and folders, checks its signature. Building it from its Go module
# takes eight minutes.
compose_if_missing() {
  if docker compose version >/dev/null 2>&1; then return; fi
  if ! can_apt || [ ! -f "$DEBIAN_KEYS" ]; then return; fi
  say "Compose from Debian $COMPOSE_DEBIAN"
  scratch=$(mktemp -d "$CACHE/compose.XXXXXX")
  mkdir -p "$scratch"/{lists,cache/archives}/partial
  echo "deb [signed-by=$DEBIAN_KEYS] $DEBIAN_MIRROR $COMPOSE_DEBIAN main" >"$scratch/sources.list"
  apt=(apt-get -qq -o "Dir::Etc::SourceList=$scratch/sources.list" -o Dir::Etc::SourceParts=-
    -o "Dir::State::Lists=$scratch/lists" -o "Dir::Cache=$scratch/cache" -o APT::Sandbox::User=root
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
  quietly "${apt[@]}" update
  (cd "$scratch" && quietly "${apt[@]}" download docker-compose)
  dpkg-deb --extract "$scratch"/docker-compose_*.deb "$scratch"
  install -D "$scratch/usr/libexec/docker/cli-plugins/docker-compose" \
    "${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins/docker-compose"
  rm -rf "$scratch"
  scratch=
}

# Images

registry_answers() {
  timeout "$PULL_SECONDS" docker pull --quiet "debian:$DEBIAN-slim" >/dev/null 2>&1
}

# Like debian:bookworm-slim, with the certificates that this machine trusts: downloads of a build use the
# same proxies as those of this machine.
stand_in_base() {
  tar=$CACHE/$DEBIAN.tar
  if [ ! -f "$tar" ] || [ "$CA_BUNDLE" -nt "$tar" ]; then
    say "No image can be pulled: a Debian by debootstrap"
    command -v debootstrap >/dev/null || apt_install debootstrap
    debian_into "$tar"
  fi
  # Tagged by its content: a new import would be another image, and all builds would start from scratch.
  export BASE=streamjoin-test-base:$(cksum <"$tar" | tr ' ' -)
  export KAFKA_IMAGE=streamjoin-test-kafka PROMETHEUS_IMAGE=streamjoin-test-prometheus
  # Testcontainers uses another image, which removes the containers of a killed test.
  export TESTCONTAINERS_RYUK_DISABLED=true
  docker image inspect "$BASE" >/dev/null 2>&1 ||
    docker import --change "ENV SSL_CERT_FILE=$CA_INSIDE PIP_CERT=$CA_INSIDE" "$tar" "$BASE" >/dev/null
}

debian_into() { # TAR
  scratch=$(mktemp -d "$CACHE/debian.XXXXXX")
  root=$scratch/root
  quietly debootstrap --variant=minbase --include=ca-certificates "$DEBIAN" "$root"
  sed -i 's|\(.*\)/debian [a-z]* main|&\n\1/debian-security '"$DEBIAN"'-security main|' \
    "$root/etc/apt/sources.list"
  # As in debian:bookworm-slim: programs without manuals.
  printf 'path-exclude /usr/share/%s/*\n' doc man info locale >"$root/etc/dpkg/dpkg.cfg.d/slim"
  rm -rf "$root"/usr/share/{doc,man,info,locale}/* "$root"/var/lib/apt/lists/* \
    "$root"/var/cache/apt/* "$root"/var/log/*
  cp "$CA_BUNDLE" "$root$CA_INSIDE"
  tar -C "$root" -cf "$scratch/tar" .
  mv "$scratch/tar" "$1"
  rm -rf "$scratch"
  scratch=
}

stand_ins() {
  say "Kafka and Prometheus on it"
  cp -r tests/docker/stand_ins/. "${scratch:=$(mktemp -d "$CACHE/stand_ins.XXXXXX")}"
  cp -r .jars/kafka "$scratch/kafka/jars"
  quietly docker compose --file "$scratch/docker-compose.yml" build
}

# Help

can_apt() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null
}

apt_install() {
  [ -n "${apt_updated:-}" ] || quietly apt-get update -qq || return
  apt_updated=yes
  DEBIAN_FRONTEND=noninteractive quietly apt-get install -qq -y --no-install-recommends "$@"
}

# The output of a tool is printed only if it fails.
quietly() {
  if ! output=$("$@" 2>&1); then
    printf '%s\n' "$output" | tail -n 40 >&2
    return 1
  fi
}

say() {
  printf '%s\n' "$*"
}

warn() {
  printf '%s\n' "$@" >&2
}

main "$@"
