#!/usr/bin/env bash
# Installs dynalite, an implementation of DynamoDB that the tests of the DynamoDB reply store
# start. Its scripts, which do not run, would build a database on disk: tests keep theirs in
# memory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/install.bash

give_up() {
	echo "The tests need dynalite, Node.js and npm: $1" >&2
	exit 1
}

install_npm dynalite 18
