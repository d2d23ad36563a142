#!/usr/bin/env bash
# Makes sure that fauxqs is there, which the tests of the SQS backend start by
# themselves: an implementation of SQS by others, that runs anywhere. It goes to
# .cache/fauxqs, in the versions that tools/fauxqs/package-lock.json names. Node.js
# itself is installed by tools/dynalite.sh if need be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

wanted=tools/fauxqs
installed=.cache/fauxqs

give_up() {
	echo "The tests need fauxqs, which needs Node.js 20 or later and npm: $1" >&2
	exit 1
}

tools/dynalite.sh
major=$(node -p 'process.versions.node.split(".")[0]')
((major >= 20)) || give_up "this is Node.js $major. Debian has 20 since its release 13; before, take it from where Node.js is published."

# What is there is complete: it was put there in one step.
if cmp -s "$wanted/package-lock.json" "$installed/package-lock.json"; then
	exit 0
fi

echo "installing fauxqs for the tests" >&2
mkdir -p .cache
log=$(mktemp)
fresh=$(mktemp -d .cache/fauxqs-XXXXXX)
trap 'rm -rf "$log" "$fresh"' EXIT
cp "$wanted/package.json" "$wanted/package-lock.json" "$fresh"
if ! npm ci --prefix "$fresh" --ignore-scripts --no-audit --no-fund --loglevel=error >"$log" 2>&1; then
	cat "$log" >&2
	give_up "npm could not install it."
fi
chmod 755 "$fresh" # others may run the tests
rm -rf "$installed"
mv "$fresh" "$installed"
