#!/usr/bin/env bash
# Makes sure that Chromium is there, which tests of the console drive, and axe-core, with
# which they check accessibility. On Debian and its relatives Chromium is installed.
# axe-core goes to .cache/axe, in the version that tools/axe/package-lock.json names.
# Node.js itself is installed by tools/dynalite.sh if need be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

wanted=tools/axe
installed=.cache/axe

log=$(mktemp)
fresh=
trap 'rm -rf "$log" ${fresh:+"$fresh"}' EXIT

give_up() {
	cat "$log" >&2
	echo "The tests of the console need Chromium and axe-core: $1" >&2
	echo "MAILBOX_CHROMIUM can name a Chromium or Chrome." >&2
	exit 1
}

found() { [[ -n ${MAILBOX_CHROMIUM:-} ]] || command -v chromium >/dev/null; }

install_chromium() {
	command -v apt-get >/dev/null || give_up "there is no apt-get to install chromium with."
	local as_root=()
	if [[ $(id -u) != 0 ]]; then
		sudo -n true 2>/dev/null || give_up "installing it needs root: sudo apt-get install chromium fonts-dejavu-core"
		as_root=(sudo -n)
	fi
	apt_install() {
		"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=120 chromium fonts-dejavu-core
	}
	echo "installing chromium for the tests" >&2
	if ! apt_install >"$log" 2>&1; then
		# The lists of packages may be old, or not there at all.
		{ "${as_root[@]}" apt-get update -q && apt_install; } >"$log" 2>&1 || give_up "apt-get could not install chromium."
	fi
	hash -r
	found || give_up "apt-get installed it, but there is no program chromium."
}

found || install_chromium

# What is there is complete: it was put there in one step.
if cmp -s "$wanted/package-lock.json" "$installed/package-lock.json"; then
	exit 0
fi

tools/dynalite.sh
echo "installing axe-core for the tests" >&2
mkdir -p .cache
fresh=$(mktemp -d .cache/axe-XXXXXX)
cp "$wanted/package.json" "$wanted/package-lock.json" "$fresh"
(cd "$fresh" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) >"$log" 2>&1 ||
	give_up "npm could not install axe-core."
chmod 755 "$fresh" # others may run the tests
rm -rf "$installed"
mv "$fresh" "$installed"
fresh=
