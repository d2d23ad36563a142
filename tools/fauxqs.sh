#!/usr/bin/env bash
# Installs fauxqs, an implementation of SQS by others that the tests of the SQS backend start.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/install.bash

give_up() {
	echo "The tests need fauxqs, Node.js and npm: $1" >&2
	echo "Debian has Node.js 20 since its release 13." >&2
	exit 1
}

install_npm fauxqs 20
