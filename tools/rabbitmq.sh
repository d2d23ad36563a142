#!/usr/bin/env bash
# Installs RabbitMQ, which the daemon suite of the benchmark starts in a directory of its
# own. On Debian and its relatives the package comes with a system service, which this
# script does not leave running.
set -euo pipefail
shopt -s nullglob

found() {
	[[ -n ${MAILBOX_RABBITMQ_SERVER:-} ]] && { command -v "$MAILBOX_RABBITMQ_SERVER" >/dev/null; return; }
	local servers=(/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server)
	((${#servers[@]} > 0))
}

if found; then
	exit 0
fi

give_up() {
	echo "The benchmark of the daemon runs without RabbitMQ: $1" >&2
	echo "Install it, or name the script rabbitmq-server of an unpacked one in MAILBOX_RABBITMQ_SERVER." >&2
	exit 1
}

[[ -z ${MAILBOX_RABBITMQ_SERVER:-} ]] || give_up "there is no $MAILBOX_RABBITMQ_SERVER, which MAILBOX_RABBITMQ_SERVER names."
command -v apt-get >/dev/null || give_up "it is not installed, and there is no apt-get to install it with."

as_root=()
if [[ $(id -u) != 0 ]]; then
	sudo -n true 2>/dev/null || give_up "it is not there, and installing it needs root: sudo apt-get install rabbitmq-server"
	as_root=(sudo -n)
fi

# In run level 1 the package does not start its service. Where systemd runs, it
# takes no notice of that, so it is told afterwards.
install() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
		apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=120 rabbitmq-server
}

echo "installing rabbitmq-server for the benchmark" >&2
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
	"${as_root[@]}" systemctl disable --now rabbitmq-server.service >/dev/null 2>&1 || true
elif [[ -x /etc/init.d/rabbitmq-server ]]; then
	"${as_root[@]}" /etc/init.d/rabbitmq-server stop >/dev/null 2>&1 || true
	"${as_root[@]}" update-rc.d rabbitmq-server disable >/dev/null 2>&1 || true
fi

found || give_up "apt-get installed it, but it is not in /usr/lib/rabbitmq."
