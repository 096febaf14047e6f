#!/bin/sh
# Creates the missing secrets of docker-compose.yml in the folder $1: tokens for the service, the token
# that Prometheus sends, and the password of Grafana.
set -eu
folder=$1
[ ! -d "$folder" ] || exit 0

random() {
  od -An -N16 -tx1 /dev/urandom | tr -d ' \n'
}

# Only the owner can open the folder. All users can read the files in it: the user of the containers is
# another one, and a container contains only the mounted file of the folder.
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
echo "created $folder: tokens contains the operator's token, grafana_password the password of Grafana's admin"
