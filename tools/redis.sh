#!/usr/bin/env bash
# Installs redis-server, which the tests of the Redis backend start.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/install.bash

server=${MAILBOX_REDIS_SERVER:-redis-server}

give_up() {
	echo "The tests need Redis 7 or later: $1" >&2
	echo "Install it so that redis-server is on the PATH, or name another server in MAILBOX_REDIS_SERVER." >&2
	exit 1
}

if ! command -v "$server" >/dev/null; then
	[[ $server == redis-server ]] || give_up "MAILBOX_REDIS_SERVER names $server, which is missing."
	install_debian redis-server || give_up "apt-get could not install redis-server."
	command -v redis-server >/dev/null || give_up "apt-get installed redis-server, but it is not on the PATH."
fi

# An older server starts as well, and tests of the backend would fail one by one.
major=$("$server" --version | sed -nE 's/.* v=([0-9]+)[.].*/\1/p')
((${major:-0} >= 7)) || give_up "$server is of version ${major:-unknown}."
