#!/usr/bin/env bash
# Makes sure that the clients of SQS are there that tests let talk to the daemon, all
# by others: @aws-sdk/client-sqs and sqs-consumer from npm, which go to
# .cache/sqsclients in the versions that tools/sqsclients/package-lock.json names, and
# awscli, boto3 and Celery with its SQS broker, as Debian and its relatives have them.
# Node.js itself is installed by tools/dynalite.sh if need be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

wanted=tools/sqsclients
installed=.cache/sqsclients

log=$(mktemp)
fresh=
trap 'rm -rf "$log" ${fresh:+"$fresh"}' EXIT

give_up() {
	cat "$log" >&2
	echo "The tests of the SQS surface need clients of SQS: $1" >&2
	echo "MAILBOX_PYTHON can name a Python 3 that has the modules." >&2
	exit 1
}

# The modules are looked for in the Python that Debian's packages are for. Celery
# reaches SQS by way of kombu, which needs boto3 and pycurl for that.
python=${MAILBOX_PYTHON:-/usr/bin/python3}
knows() { "$python" -c "import $1" 2>/dev/null; }

# A shim of a Python version manager may be on the PATH without anything behind it.
speaks_aws() { /usr/bin/aws --version >/dev/null 2>&1 || aws --version >/dev/null 2>&1; }

packages=()
speaks_aws || packages+=(awscli)
knows boto3 || packages+=(python3-boto3)
knows celery || packages+=(python3-celery)
knows kombu || packages+=(python3-kombu)
knows pycurl || packages+=(python3-pycurl)

install_packages() {
	command -v apt-get >/dev/null || give_up "there is no apt-get to install ${packages[*]} with."
	local as_root=()
	if [[ $(id -u) != 0 ]]; then
		sudo -n true 2>/dev/null || give_up "installing them needs root: sudo apt-get install ${packages[*]}"
		as_root=(sudo -n)
	fi
	apt_install() {
		"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=120 "${packages[@]}"
	}
	echo "installing ${packages[*]} for the tests" >&2
	if ! apt_install >"$log" 2>&1; then
		# The lists of packages may be old, or not there at all.
		{ "${as_root[@]}" apt-get update -q && apt_install; } >"$log" 2>&1 || give_up "apt-get could not install ${packages[*]}."
	fi
	hash -r
	speaks_aws || give_up "apt-get installed awscli, but aws does not run."
	knows 'boto3, celery, kombu, pycurl' || give_up "apt-get installed them, but $python does not know them."
}

if [[ ${#packages[@]} != 0 ]]; then
	install_packages
fi

tools/dynalite.sh
major=$(node -p 'process.versions.node.split(".")[0]')
((major >= 20)) || give_up "those from npm need Node.js 20 or later, and this is $major."

# What is there is complete: it was put there in one step.
if cmp -s "$wanted/package-lock.json" "$installed/package-lock.json"; then
	exit 0
fi

echo "installing @aws-sdk/client-sqs and sqs-consumer for the tests" >&2
mkdir -p .cache
fresh=$(mktemp -d .cache/sqsclients-XXXXXX)
cp "$wanted/package.json" "$wanted/package-lock.json" "$fresh"
npm ci --prefix "$fresh" --ignore-scripts --no-audit --no-fund --loglevel=error >"$log" 2>&1 ||
	give_up "npm could not install those from it."
chmod 755 "$fresh" # others may run the tests
rm -rf "$installed"
mv "$fresh" "$installed"
fresh=
