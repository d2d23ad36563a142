#!/usr/bin/env bash
# Makes sure that beanstalkd is there, which the daemon suite of the benchmark
# starts by itself. On Debian and its relatives it is installed, and the system
# service that comes with it is not left running.
set -euo pipefail

server=${MAILBOX_BEANSTALKD:-beanstalkd}

if command -v "$server" >/dev/null; then
	exit 0
fi

give_up() {
	echo "The benchmark of the daemon needs beanstalkd: $1" >&2
	echo "Install it so that beanstalkd is on the PATH, or name another server in MAILBOX_BEANSTALKD." >&2
	exit 1
}

[[ $server == beanstalkd ]] || give_up "there is no $server, which MAILBOX_BEANSTALKD names."
command -v apt-get >/dev/null || give_up "it is not there, and there is no apt-get to install it with."

as_root=()
if [[ $(id -u) != 0 ]]; then
	sudo -n true 2>/dev/null || give_up "it is not there, and installing it needs root: sudo apt-get install beanstalkd"
	as_root=(sudo -n)
fi

# In run level 1 the package does not start its service. Where systemd runs, it
# takes no notice of that, so it is told afterwards.
install() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
		apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=120 beanstalkd
}

echo "installing beanstalkd for the benchmark" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! install >"$log" 2>&1; then
	# The lists of packages may be old, or not there at all.
	if ! { "${as_root[@]}" apt-get update -q && install; } >"$log" 2>&1; then
		cat "$log" >&2
		give_up "apt-get could not install it."
	fi
fi

if [[ -d /run/systemd/system ]]; then
	"${as_root[@]}" systemctl disable --now beanstalkd.service beanstalkd.socket >/dev/null 2>&1 || true
elif [[ -x /etc/init.d/beanstalkd ]]; then
	"${as_root[@]}" /etc/init.d/beanstalkd stop >/dev/null 2>&1 || true
	"${as_root[@]}" update-rc.d beanstalkd disable >/dev/null 2>&1 || true
fi

command -v beanstalkd >/dev/null || give_up "apt-get installed it, but it is not on the PATH."
