#!/usr/bin/env bash
# `make test-docker`: runs tests/docker, and makes before that what this machine lacks.
#
# - A Docker engine and Compose: as root on Debian they are installed, and the engine is started for
#   as long as the tests run. Elsewhere the tests are skipped, saying so.
# - Images, where no registry answers: a Debian by debootstrap, and on it a Kafka from the jars of
#   jars.toml and Debian's own Prometheus (tests/docker/stand_ins).
#
# What takes long is kept in ~/.cache/streamjoin. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/../.."

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/streamjoin
COMPOSE_VERSION=v2.40.3
DEBIAN=bookworm
CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
# Beside the system's own bundle, which an update of its package would make anew.
CA_INSIDE=/etc/ssl/certs/of-the-machine.pem
ENGINE_SECONDS=60
PULL_SECONDS=120

main() {
  mkdir -p "$CACHE"
  trap clean_up EXIT
  # Compose takes minutes to build, debootstrap one: both at once.
  compose_if_missing >"$CACHE/compose.log" 2>&1 &
  compose_build=$!
  engine_if_missing || say "No Docker engine here: docker info says why."
  if docker info >/dev/null 2>&1; then
    # In `if`, not after `||`: there, bash would go on after a failure.
    if ! registry_answers; then stand_in_base; fi
    say "Compose"
    if ! wait "$compose_build"; then tail -n 20 "$CACHE/compose.log" >&2; fi
    if [ -n "${KAFKA_IMAGE:-}" ]; then stand_ins; fi
  fi
  .venv/bin/pytest tests/docker "$@"
}

clean_up() {
  [ -z "${scratch:-}" ] || rm -rf "$scratch"
  [ -z "${engine:-}" ] || { kill "$engine" && wait "$engine" 2>/dev/null || true; }
}

# The engine

engine_if_missing() {
  if docker info >/dev/null 2>&1; then return; fi
  if ! command -v dockerd >/dev/null; then
    can_apt || return
    say "Docker through apt-get"
    apt_install docker.io iptables || return
  fi
  [ "$(id -u)" = 0 ] || return
  # overlay2 where the file system can, which the engine finds out; vfs can everywhere.
  start_engine || start_engine --storage-driver=vfs
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
  tail -n 5 "$CACHE/dockerd.log" >&2
  return 1
}

# Debian 12 has no Compose v2. Its Go module is built as itself, with the go.sum that it was
# released with: that of a package that requires it would be another choice of versions.
compose_if_missing() {
  if docker compose version; then return; fi
  plugin=$HOME/.docker/cli-plugins/docker-compose
  source=$(go mod download -json "github.com/docker/compose/v2@$COMPOSE_VERSION" |
    sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
  mkdir -p "$(dirname "$plugin")"
  build=$(mktemp -d "$CACHE/compose.XXXXXX")
  cp -r "$source/." "$build"
  chmod -R u+w "$build"
  (cd "$build" && CGO_ENABLED=0 go build -trimpath -o "$plugin.new" \
    -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$COMPOSE_VERSION" ./cmd)
  mv "$plugin.new" "$plugin"
  rm -rf "$build"
}

# Images

registry_answers() {
  timeout "$PULL_SECONDS" docker pull --quiet "debian:$DEBIAN-slim" >/dev/null 2>&1
}

# Like debian:bookworm-slim, with the certificates that this machine trusts: what a build downloads
# comes the same way as what this machine does.
stand_in_base() {
  tar=$CACHE/$DEBIAN.tar
  if [ ! -f "$tar" ] || [ "$CA_BUNDLE" -nt "$tar" ]; then
    say "No image can be pulled: a Debian by debootstrap"
    command -v debootstrap >/dev/null || apt_install debootstrap
    debian_into "$tar"
  fi
  # Named by its content: imported again it would be another image, and all be built again on it.
  export BASE=streamjoin-test-base:$(cksum <"$tar" | tr ' ' -)
  export KAFKA_IMAGE=streamjoin-test-kafka PROMETHEUS_IMAGE=streamjoin-test-prometheus
  docker image inspect "$BASE" >/dev/null 2>&1 ||
    docker import --change "ENV SSL_CERT_FILE=$CA_INSIDE PIP_CERT=$CA_INSIDE" "$tar" "$BASE" >/dev/null
}

debian_into() { # TAR
  scratch=$(mktemp -d "$CACHE/debian.XXXXXX")
  root=$scratch/root
  quietly debootstrap --variant=minbase --include=ca-certificates "$DEBIAN" "$root"
  sed -i 's|\(.*\)/debian [a-z]* main|&\n\1/debian-security '"$DEBIAN"'-security main|' \
    "$root/etc/apt/sources.list"
  # As in debian:bookworm-slim: programs, not what one reads about them.
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

# What a tool says matters only when it fails.
quietly() {
  if ! output=$("$@" 2>&1); then
    printf '%s\n' "$output" | tail -n 40 >&2
    return 1
  fi
}

say() {
  printf '%s\n' "$*"
}

main "$@"
