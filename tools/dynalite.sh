#!/usr/bin/env bash
# Makes sure that dynalite is there, which the tests of the DynamoDB reply store
# start by themselves: an implementation of DynamoDB that runs anywhere. It goes
# to .cache/dynalite, in the versions that tools/dynalite/package-lock.json
# names. On Debian and its relatives Node.js is installed for it if need be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

wanted=tools/dynalite
installed=.cache/dynalite

give_up() {
	echo "The tests need dynalite, which needs Node.js 18 or later and npm: $1" >&2
	exit 1
}

# fail shows what was printed before it gives up.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
fail() {
	cat "$log" >&2
	give_up "$1"
}

install_node() {
	command -v apt-get >/dev/null || give_up "they are not here, and there is no apt-get to install them with."
	local as_root=()
	if [[ $(id -u) != 0 ]]; then
		sudo -n true 2>/dev/null || give_up "installing them needs root: sudo apt-get install nodejs npm ca-certificates"
		as_root=(sudo -n)
	fi
	apt_install() {
		"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=120 nodejs npm ca-certificates
	}
	# Node.js only recommends the certificates that npm needs.
	echo "installing Node.js for the tests" >&2
	if ! apt_install >"$log" 2>&1; then
		# The lists of packages may be old, or not there at all.
		{ "${as_root[@]}" apt-get update -q && apt_install; } >"$log" 2>&1 || fail "apt-get could not install them."
	fi
}

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
	install_node
fi
major=$(node -p 'process.versions.node.split(".")[0]')
((major >= 18)) || give_up "this is Node.js $major."

# What is there is complete: it was put there in one step.
if cmp -s "$wanted/package-lock.json" "$installed/package-lock.json"; then
	exit 0
fi

echo "installing dynalite for the tests" >&2
mkdir -p .cache
fresh=$(mktemp -d .cache/dynalite-XXXXXX)
trap 'rm -rf "$log" "$fresh"' EXIT
cp "$wanted/package.json" "$wanted/package-lock.json" "$fresh"
# The scripts would build a database on disk. The tests keep theirs in memory.
npm ci --prefix "$fresh" --ignore-scripts --no-audit --no-fund --loglevel=error >"$log" 2>&1 ||
	fail "npm could not install it."
chmod 755 "$fresh" # others may run the tests
rm -rf "$installed"
mv "$fresh" "$installed"
