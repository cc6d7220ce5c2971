#!/bin/sh
# The steps of a deployment; compose.yaml runs each in a container.
#
#   sh steps.sh model    simulate a log and train a ranker on it, once
#   sh steps.sh serve    serve the ranker, log what it shows
#   sh steps.sh look     collect the log once, and watch it
#   sh steps.sh loop     the same every $EVERY seconds
#   sh steps.sh try      all of it without Docker, on loopback: serve, send requests, look, end
set -eu

here=$(dirname "$0")
: "${ROOT:=/srv}" "${HOST:=127.0.0.1}" "${PORT:=8080}" "${EVERY:=3600}" "${VISITS:=400}"
: "${TOKEN_FILE:=$ROOT/token}"

model() {
  if [ -e "$ROOT/model/ranker.untilt" ]; then return; fi
  untilt simulate --out "$ROOT/model/simulated" --queries 30 --sessions 2000 --force
  untilt train "$ROOT/model/simulated/clicks.parquet" \
    --documents "$ROOT/model/simulated/documents.parquet" \
    --ranker linear --method balanced --bias "$ROOT/model/simulated/bias.json" \
    --out "$ROOT/model/trained.untilt"
  cp "$ROOT/model/simulated/documents.parquet" "$ROOT/model/documents.parquet"
  mv "$ROOT/model/trained.untilt" "$ROOT/model/ranker.untilt"
}

serve() {
  exec untilt serve "$ROOT/model/ranker.untilt" --documents "$ROOT/model/documents.parquet" \
    --log "$ROOT/log/serving" --explore pivot:0.02 --host "$HOST" --port "$PORT" \
    --token-file "$TOKEN_FILE"
}

# Exit codes of watch: 0 nothing changed, 3 an alarm, 2 too few sessions yet.
look() {
  untilt collect "$ROOT/log/serving" --out "$ROOT/clicks/daily" --close-after 7
  code=0
  untilt watch "$ROOT/clicks/daily" --documents "$ROOT/model/documents.parquet" \
    --page "$ROOT/pages/watch.html" --prometheus "$ROOT/pages/watch.prom" || code=$?
  echo "watch ended with exit code $code"
  return "$code"
}

loop() {
  while :; do
    look || true
    sleep "$EVERY"
  done
}

try() {
  mkdir -p "$ROOT/model" "$ROOT/log" "$ROOT/clicks" "$ROOT/pages"
  [ -e "$TOKEN_FILE" ] || (umask 077 && head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$TOKEN_FILE")
  model
  serve &
  server=$!
  trap 'kill "$server" 2> /dev/null || true' EXIT
  python3 "$here/ask.py" "http://$HOST:$PORT" "$ROOT/model/documents.parquet" \
    --token-file "$TOKEN_FILE" --visits "$VISITS"
  look
}

case "${1:-}" in
  model | serve | look | loop | try) "$1" ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
