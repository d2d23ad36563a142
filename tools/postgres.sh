#!/usr/bin/env bash
# Makes sure that PostgreSQL is there, which tests and the benchmark of workers
# start, in a directory of their own. On Debian and its relatives it is installed, and
# the system service that comes with it is not left running. So is pgbouncer, if it can
# be had: tests behind it are skipped where it is missing.
set -euo pipefail
shopt -s nullglob

found() {
	[[ -n ${MAILBOX_POSTGRES_BIN:-} ]] && { [[ -x $MAILBOX_POSTGRES_BIN/initdb ]]; return; }
	command -v initdb >/dev/null && return
	local programs=(/usr/lib/postgresql/*/bin/initdb)
	((${#programs[@]} > 0))
}

pooler_found() { command -v pgbouncer >/dev/null || [[ -x /usr/sbin/pgbouncer ]]; }

if found && pooler_found; then
	exit 0
fi

give_up() {
	echo "The tests need PostgreSQL: $1" >&2
	echo "Install it so that initdb and postgres are on the PATH, or name their folder in MAILBOX_POSTGRES_BIN." >&2
	exit 1
}

# without_pooler ends the script where only pgbouncer is missing and cannot be installed.
without_pooler() {
	if found; then
		echo "pgbouncer is missing: tests behind it are skipped" >&2
		exit 0
	fi
}

[[ -z ${MAILBOX_POSTGRES_BIN:-} ]] || without_pooler
[[ -z ${MAILBOX_POSTGRES_BIN:-} ]] || give_up "there is no initdb in $MAILBOX_POSTGRES_BIN, which MAILBOX_POSTGRES_BIN names."
command -v apt-get >/dev/null || without_pooler
command -v apt-get >/dev/null || give_up "there is no initdb, and no apt-get to install it with."

as_root=()
if [[ $(id -u) != 0 ]]; then
	sudo -n true 2>/dev/null || without_pooler
	sudo -n true 2>/dev/null || give_up "there is no initdb, and installing it needs root: sudo apt-get install postgresql"
	as_root=(sudo -n)
fi

# In run level 1 packages do not start their services. Where systemd runs, it
# takes no notice of that, so it is told afterwards.
install_package() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
		apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=120 "$1"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# install installs a package, and leaves no service of it running.
install() {
	echo "installing $1 for the tests" >&2
	if ! install_package "$1" >"$log" 2>&1; then
		# The lists of packages may be old, or not there at all.
		{ "${as_root[@]}" apt-get update -q && install_package "$1"; } >"$log" 2>&1 || return
	fi
	if [[ -d /run/systemd/system ]]; then
		"${as_root[@]}" systemctl disable --now "$1.service" >/dev/null 2>&1 || true
	elif [[ -x /etc/init.d/$1 ]]; then
		"${as_root[@]}" "/etc/init.d/$1" stop >/dev/null 2>&1 || true
		"${as_root[@]}" update-rc.d "$1" disable >/dev/null 2>&1 || true
	fi
}

if ! found && ! install postgresql; then
	cat "$log" >&2
	give_up "apt-get could not install postgresql."
fi
found || give_up "apt-get installed postgresql, but initdb is not where it should be."
pooler_found || install pgbouncer || without_pooler
