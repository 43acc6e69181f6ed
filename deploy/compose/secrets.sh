#!/usr/bin/env bash
# Makes the passwords and tokens of deploy/compose.yaml, once: .env for compose, and the gateway's
# token as a file for Prometheus. Both stay on this machine; git ignores them.
set -euo pipefail
cd "$(dirname "$0")"
if [ -e .env ]; then
  echo "deploy/compose/.env exists; remove it for new secrets" >&2
  exit 1
fi
secret() { head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n'; }
token=$(secret)
umask 077
printf "%s\n" "COMPOSE_PROJECT_NAME=balde" "BALDE_GATEWAY_TOKEN=$token" "BALDE_MONITOR_TOKEN=$(secret)" "BALDE_STATE_TOKEN=$(secret)" \
  "POSTGRES_PASSWORD=$(secret)" "GRAFANA_PASSWORD=$(secret)" >.env
# Prometheus reads it under another user.
umask 022
printf '%s' "$token" >gateway-token
echo "wrote deploy/compose/.env and deploy/compose/gateway-token"
