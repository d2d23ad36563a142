#!/usr/bin/env bash
# Installs the tools by which tests watch the daemon and use it as strangers do: strace, curl,
# and pymacaroons for Python 3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/install.bash

give_up() {
	echo "The tests of the daemon need strace, curl and pymacaroons: $1" >&2
	echo "Install them; MAILBOX_PYTHON can name a Python 3 that knows pymacaroons." >&2
	exit 1
}

knows_macaroons() {
	local python
	for python in "${MAILBOX_PYTHON:-}" python3 /usr/bin/python3; do
		if [[ -n $python ]] && "$python" -c 'import pymacaroons' 2>/dev/null; then
			return 0
		fi
	done
	return 1
}

packages=()
command -v strace >/dev/null || [[ $(uname) != Linux ]] || packages+=(strace)
command -v curl >/dev/null || packages+=(curl)
knows_macaroons || packages+=(python3-pymacaroons)
if ((${#packages[@]} > 0)); then
	install_debian "${packages[@]}" || give_up "apt-get could not install them."
	knows_macaroons || give_up "apt-get installed python3-pymacaroons, but no python3 here knows it."
fi
