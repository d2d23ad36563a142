# Functions of the scripts in this folder, which source this file. Each script defines
# give_up, which prints what to do and exits.

# install_debian PACKAGE... installs packages on Debian and its relatives, and leaves no
# service of them running. It returns 1 if apt-get fails, after printing its output.
install_debian() {
	command -v apt-get >/dev/null || give_up "$* is missing, and so is apt-get to install it with."
	local as_root=()
	if [[ $(id -u) != 0 ]]; then
		sudo -n true 2>/dev/null || give_up "$* is missing, and installing it needs root: sudo apt-get install $*"
		as_root=(sudo -n)
	fi
	# In run level 1 packages do not start their services. systemd ignores that, so
	# services are disabled below.
	local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
		apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=120 "$@")
	echo "installing $*" >&2
	if ! logged "${install[@]}" 2>/dev/null; then
		# The package lists may be missing or old.
		logged "${as_root[@]}" apt-get update -q && logged "${install[@]}" || return 1
	fi
	hash -r
	local package unit
	for package in "$@"; do
		for unit in "$package.service" "$package.socket"; do
			[[ ! -d /run/systemd/system ]] || "${as_root[@]}" systemctl disable --now "$unit" >/dev/null 2>&1 || true
		done
		if [[ ! -d /run/systemd/system && -x /etc/init.d/$package ]]; then
			"${as_root[@]}" "/etc/init.d/$package" stop >/dev/null 2>&1 || true
			"${as_root[@]}" update-rc.d "$package" disable >/dev/null 2>&1 || true
		fi
	done
}

# logged COMMAND... runs a command, and prints its output if it fails.
logged() {
	local output
	output=$("$@" 2>&1) || { echo "$output" >&2; return 1; }
}

# install_npm NAME VERSION installs what tools/NAME/package-lock.json names in .cache/NAME, and
# Node.js if it is missing, which must have at least that major version.
install_npm() {
	local name=$1 version=$2 major fresh
	if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
		# Node.js only recommends the certificates that npm needs.
		install_debian nodejs npm ca-certificates || give_up "apt-get could not install Node.js."
	fi
	major=$(node -p 'process.versions.node.split(".")[0]')
	((major >= version)) || give_up "it needs Node.js $version or later, and this is $major."
	# A folder that has the lock file is complete: it was put there in one step.
	if cmp -s "tools/$name/package-lock.json" ".cache/$name/package-lock.json"; then
		return
	fi
	echo "installing $name" >&2
	mkdir -p .cache
	fresh=$(mktemp -d ".cache/$name-XXXXXX")
	cp "tools/$name/package.json" "tools/$name/package-lock.json" "$fresh"
	if ! logged npm ci --prefix "$fresh" --ignore-scripts --no-audit --no-fund --loglevel=error; then
		rm -rf "$fresh"
		give_up "npm could not install it."
	fi
	chmod 755 "$fresh" # other users may run the tests
	rm -rf ".cache/$name"
	mv "$fresh" ".cache/$name"
}
