#!/bin/sh
# Runs its arguments. Before a job it clears Spark's scratch folder: a job that was killed leaves
# its copy of the state there, which no later one reads.
set -eu

if [ "${1:-}" = streamjoin ] && [ "${2:-}" = run ]; then
  # The job inherits the lock, and holds it for as long as it lives: a second one on the same
  # volume, which the checkpoint's lease refuses anyway, takes nothing from it.
  exec 9>"$SPARK_LOCAL_DIRS/lock"
  if flock --nonblock 9; then
    find "$SPARK_LOCAL_DIRS" -mindepth 1 -not -name lock -delete
  fi
fi
exec "$@"
