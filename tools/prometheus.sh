#!/usr/bin/env bash
# Makes sure that prometheus and promtool are there, with which tests scrape the
# daemon and a worker, and check the alerts and the dashboards. On Debian and its
# relatives they are installed, and the system service that comes with them is not
# left running.
set -euo pipefail

give_up() {
	echo "The tests of dashboards and alerts need Prometheus: $1" >&2
	echo "Install it so that prometheus and promtool are on the PATH." >&2
	exit 1
}

is_there() { command -v prometheus >/dev/null && command -v promtool >/dev/null; }

if is_there; then
	exit 0
fi
command -v apt-get >/dev/null || give_up "it is missing, and there is no apt-get to install it with."

as_root=()
if [[ $(id -u) != 0 ]]; then
	sudo -n true 2>/dev/null || give_up "it is missing, and installing it needs root: sudo apt-get install prometheus"
	as_root=(sudo -n)
fi

# In run level 1 the package does not start its service. systemd ignores that, so
# the service is disabled below.
install() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
		apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=120 prometheus
}

echo "installing prometheus for the tests" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! install >"$log" 2>&1; then
	# The package lists may be missing or old.
	if ! { "${as_root[@]}" apt-get update -q && install; } >"$log" 2>&1; then
		cat "$log" >&2
		give_up "apt-get could not install it."
	fi
fi

if [[ -d /run/systemd/system ]]; then
	"${as_root[@]}" systemctl disable --now prometheus.service >/dev/null 2>&1 || true
elif [[ -x /etc/init.d/prometheus ]]; then
	"${as_root[@]}" /etc/init.d/prometheus stop >/dev/null 2>&1 || true
	"${as_root[@]}" update-rc.d prometheus disable >/dev/null 2>&1 || true
fi

is_there || give_up "apt-get installed it, but prometheus or promtool is not on the PATH."
