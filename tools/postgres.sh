#!/usr/bin/env bash
# Installs PostgreSQL, which tests and the benchmark of workers start in a folder of their own,
# and pgbouncer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/install.bash
shopt -s nullglob

found() {
	[[ -n ${MAILBOX_POSTGRES_BIN:-} ]] && { [[ -x $MAILBOX_POSTGRES_BIN/initdb ]]; return; }
	command -v initdb >/dev/null && return
	local programs=(/usr/lib/postgresql/*/bin/initdb)
	((${#programs[@]} > 0))
}

pooler_found() { command -v pgbouncer >/dev/null || [[ -x /usr/sbin/pgbouncer ]]; }

give_up() {
	if found; then
		echo "The tests need pgbouncer: $1" >&2
		exit 1
	fi
	echo "The tests need PostgreSQL: $1" >&2
	echo "Install it so that initdb and postgres are on the PATH, or name their folder in MAILBOX_POSTGRES_BIN." >&2
	exit 1
}

if ! found; then
	[[ -z ${MAILBOX_POSTGRES_BIN:-} ]] || give_up "MAILBOX_POSTGRES_BIN names $MAILBOX_POSTGRES_BIN, which has no initdb."
	install_debian postgresql || give_up "apt-get could not install it."
	found || give_up "apt-get installed it, but initdb is not where it should be."
fi
pooler_found || install_debian pgbouncer || give_up "apt-get could not install it."
