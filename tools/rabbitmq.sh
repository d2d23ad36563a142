#!/usr/bin/env bash
# Installs RabbitMQ, which the daemon suite of the benchmark starts in a folder of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/install.bash
shopt -s nullglob

found() {
	[[ -n ${MAILBOX_RABBITMQ_SERVER:-} ]] && { command -v "$MAILBOX_RABBITMQ_SERVER" >/dev/null; return; }
	local servers=(/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server)
	((${#servers[@]} > 0))
}

give_up() {
	echo "The benchmark of the daemon runs without RabbitMQ: $1" >&2
	echo "Install it, or name the script rabbitmq-server of an unpacked one in MAILBOX_RABBITMQ_SERVER." >&2
	exit 1
}

if ! found; then
	[[ -z ${MAILBOX_RABBITMQ_SERVER:-} ]] || give_up "MAILBOX_RABBITMQ_SERVER names $MAILBOX_RABBITMQ_SERVER, which is missing."
	install_debian rabbitmq-server || give_up "apt-get could not install it."
	found || give_up "apt-get installed it, but it is not in /usr/lib/rabbitmq."
fi
