#!/usr/bin/env bash
# Installs Chromium, which tests of the console drive, and axe-core, with which they check
# accessibility.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/install.bash

give_up() {
	echo "The tests of the console need Chromium and axe-core: $1" >&2
	echo "MAILBOX_CHROMIUM can name a Chromium or Chrome." >&2
	exit 1
}

found() { [[ -n ${MAILBOX_CHROMIUM:-} ]] || command -v chromium >/dev/null; }

if ! found; then
	install_debian chromium fonts-dejavu-core || give_up "apt-get could not install chromium."
	found || give_up "apt-get installed chromium, but it is not on the PATH."
fi

install_npm axe 18
