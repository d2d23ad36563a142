#!/usr/bin/env bash
# Makes sure that PostgreSQL is there, which tests and the benchmark of workers
# start, in a directory of their own. On Debian and its relatives it is installed, and
# the system service that comes with it is not left running.
set -euo pipefail
shopt -s nullglob

found() {
	[[ -n ${MAILBOX_POSTGRES_BIN:-} ]] && { [[ -x $MAILBOX_POSTGRES_BIN/initdb ]]; return; }
	command -v initdb >/dev/null && return
	local programs=(/usr/lib/postgresql/*/bin/initdb)
	((${#programs[@]} > 0))
}

if found; then
	exit 0
fi

give_up() {
	echo "The tests need PostgreSQL: $1" >&2
	echo "Install it so that initdb and postgres are on the PATH, or name their folder in MAILBOX_POSTGRES_BIN." >&2
	exit 1
}

[[ -z ${MAILBOX_POSTGRES_BIN:-} ]] || give_up "there is no initdb in $MAILBOX_POSTGRES_BIN, which MAILBOX_POSTGRES_BIN names."
command -v apt-get >/dev/null || give_up "there is no initdb, and no apt-get to install it with."

as_root=()
if [[ $(id -u) != 0 ]]; then
	sudo -n true 2>/dev/null || give_up "there is no initdb, and installing it needs root: sudo apt-get install postgresql"
	as_root=(sudo -n)
fi

# In run level 1 the package does not start its service. Where systemd runs, it
# takes no notice of that, so it is told afterwards.
install() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
		apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=120 postgresql
}

echo "installing postgresql for the tests" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! install >"$log" 2>&1; then
	# The lists of packages may be old, or not there at all.
	if ! { "${as_root[@]}" apt-get update -q && install; } >"$log" 2>&1; then
		cat "$log" >&2
		give_up "apt-get could not install postgresql."
	fi
fi

if [[ -d /run/systemd/system ]]; then
	"${as_root[@]}" systemctl disable --now postgresql.service >/dev/null 2>&1 || true
elif [[ -x /etc/init.d/postgresql ]]; then
	"${as_root[@]}" /etc/init.d/postgresql stop >/dev/null 2>&1 || true
	"${as_root[@]}" update-rc.d postgresql disable >/dev/null 2>&1 || true
fi

found || give_up "apt-get installed postgresql, but initdb is not where it should be."
