#!/bin/bash
# KAFKA_NUM_PARTITIONS=4 becomes num.partitions=4, as in apache/kafka's image: _ is a dot, __ an
# underscore, ___ a dash. A few variables are for the JVM and are no settings of the broker.
set -euo pipefail

settings=/tmp/server.properties
for name in ${!KAFKA_*}; do
  case $name in
    KAFKA_HEAP_OPTS | KAFKA_OPTS | KAFKA_JVM_PERFORMANCE_OPTS) continue ;;
  esac
  key=${name#KAFKA_}
  key=${key//___/-}
  key=${key//__/@}
  key=${key//_/.}
  key=${key//@/_}
  echo "${key,,}=${!name}"
done >"$settings"

java=(java ${KAFKA_HEAP_OPTS:--Xmx512m} -XX:+UseSerialGC ${KAFKA_OPTS:-} -cp "/opt/kafka/libs/*")
"${java[@]}" kafka.tools.StorageTool format --ignore-formatted \
  --cluster-id "${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}" --config "$settings"
exec "${java[@]}" kafka.Kafka "$settings"
