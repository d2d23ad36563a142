#!/usr/bin/env bash
# Makes sure that the tools are there by which tests watch the daemon and use it as
# strangers do: strace, curl, and pymacaroons for Python 3. On Debian and its
# relatives what is missing is installed.
set -euo pipefail

packages=()
command -v strace >/dev/null || [[ $(uname) != Linux ]] || packages+=(strace)
command -v curl >/dev/null || packages+=(curl)

knows_macaroons() {
	local python
	for python in "${MAILBOX_PYTHON:-}" python3 /usr/bin/python3; do
		if [[ -n $python ]] && "$python" -c 'import pymacaroons' 2>/dev/null; then
			return 0
		fi
	done
	return 1
}
knows_macaroons || packages+=(python3-pymacaroons)

if [[ ${#packages[@]} == 0 ]]; then
	exit 0
fi

give_up() {
	echo "The tests of the daemon need ${packages[*]}: $1" >&2
	echo "Install them; MAILBOX_PYTHON can name a Python 3 that knows pymacaroons." >&2
	exit 1
}

command -v apt-get >/dev/null || give_up "there is no apt-get to install them with."

as_root=()
if [[ $(id -u) != 0 ]]; then
	sudo -n true 2>/dev/null || give_up "installing needs root: sudo apt-get install ${packages[*]}"
	as_root=(sudo -n)
fi

install() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=120 "${packages[@]}"
}

echo "installing ${packages[*]} for the tests" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! install >"$log" 2>&1; then
	# The lists of packages may be old, or not there at all.
	if ! { "${as_root[@]}" apt-get update -q && install; } >"$log" 2>&1; then
		cat "$log" >&2
		give_up "apt-get could not install them."
	fi
fi

knows_macaroons || give_up "apt-get installed python3-pymacaroons, but no python3 here knows it."
