#!/usr/bin/env bash
# Makes sure that redis-server is there, which the tests of the Redis backend
# start by themselves. On Debian and its relatives it is installed, and the
# system service that comes with it is not left running.
set -euo pipefail

server=${MAILBOX_REDIS_SERVER:-redis-server}

give_up() {
	echo "The tests need Redis 7 or later: $1" >&2
	echo "Install it so that redis-server is on the PATH, or name another server in MAILBOX_REDIS_SERVER." >&2
	exit 1
}

# An older server starts as well, and tests of the backend would fail one by one.
recent_enough() {
	local major
	major=$("$server" --version | sed -nE 's/.* v=([0-9]+)[.].*/\1/p')
	((${major:-0} >= 7)) || give_up "$server is of version ${major:-unknown}."
}

if command -v "$server" >/dev/null; then
	recent_enough
	exit 0
fi

[[ $server == redis-server ]] || give_up "there is no $server, which MAILBOX_REDIS_SERVER names."
command -v apt-get >/dev/null || give_up "there is no redis-server, and no apt-get to install it with."

as_root=()
if [[ $(id -u) != 0 ]]; then
	sudo -n true 2>/dev/null || give_up "there is no redis-server, and installing it needs root: sudo apt-get install redis-server"
	as_root=(sudo -n)
fi

# In run level 1 the package does not start its service. Where systemd runs, it
# takes no notice of that, so it is told afterwards.
install() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
		apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=120 redis-server
}

echo "installing redis-server for the tests" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! install >"$log" 2>&1; then
	# The lists of packages may be old, or not there at all.
	if ! { "${as_root[@]}" apt-get update -q && install; } >"$log" 2>&1; then
		cat "$log" >&2
		give_up "apt-get could not install redis-server."
	fi
fi

if [[ -d /run/systemd/system ]]; then
	"${as_root[@]}" systemctl disable --now redis-server.service >/dev/null 2>&1 || true
elif [[ -x /etc/init.d/redis-server ]]; then
	"${as_root[@]}" /etc/init.d/redis-server stop >/dev/null 2>&1 || true
	"${as_root[@]}" update-rc.d redis-server disable >/dev/null 2>&1 || true
fi

command -v redis-server >/dev/null || give_up "apt-get installed redis-server, but it is not on the PATH."
recent_enough
