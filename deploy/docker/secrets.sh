#!/bin/sh
# Makes the secrets of docker-compose.yml in the folder $1, where there is none yet: tokens for the
# service, the one of them that Prometheus shows, and Grafana's password.
set -eu
folder=$1
[ ! -d "$folder" ] || exit 0

random() {
  od -An -N16 -tx1 /dev/urandom | tr -d ' \n'
}

# The folder is its owner's alone. The files in it can be read by all: the containers' user is
# another one, and sees of the folder only the file that is mounted.
mkdir -p "$(dirname "$folder")"
new=$(mktemp -d "$folder.XXXXXX")
prometheus=$(random)
cat >"$new/tokens" <<END
# name      scope    token
prometheus  read     $prometheus
operator    control  $(random)
END
printf %s "$prometheus" >"$new/prometheus_token"
random >"$new/grafana_password"
chmod 644 "$new"/*
mv "$new" "$folder"
echo "made $folder: the operator's token is in tokens, the password of Grafana's admin in grafana_password"
