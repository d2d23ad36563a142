#!/usr/bin/env bash
# racetest.sh TEST-BINARY ARGUMENTS...: runs a test binary for go test -exec, and runs it again
# if the race detector broke down: with testing/synctest one of its own checks fails now and
# then (golang/go#78156), which says nothing about the code under test.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for _ in 1 2 3; do
	"$@" 2>&1 | tee "$log"
	code=$?
	grep -q '^ThreadSanitizer: CHECK failed' "$log" || break
done
exit "$code"
