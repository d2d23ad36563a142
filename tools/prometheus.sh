#!/usr/bin/env bash
# Installs prometheus and promtool, with which tests scrape the daemon and a worker, and check
# the alerts and the dashboards.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/install.bash

give_up() {
	echo "The tests of dashboards and alerts need Prometheus: $1" >&2
	echo "Install it so that prometheus and promtool are on the PATH." >&2
	exit 1
}

found() { command -v prometheus >/dev/null && command -v promtool >/dev/null; }

if ! found; then
	install_debian prometheus || give_up "apt-get could not install it."
	found || give_up "apt-get installed it, but prometheus or promtool is not on the PATH."
fi
