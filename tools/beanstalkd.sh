#!/usr/bin/env bash
# Installs beanstalkd, which the daemon suite of the benchmark starts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/install.bash

server=${MAILBOX_BEANSTALKD:-beanstalkd}

give_up() {
	echo "The benchmark of the daemon needs beanstalkd: $1" >&2
	echo "Install it so that beanstalkd is on the PATH, or name another server in MAILBOX_BEANSTALKD." >&2
	exit 1
}

if ! command -v "$server" >/dev/null; then
	[[ $server == beanstalkd ]] || give_up "MAILBOX_BEANSTALKD names $server, which is missing."
	install_debian beanstalkd || give_up "apt-get could not install it."
	command -v beanstalkd >/dev/null || give_up "apt-get installed it, but it is not on the PATH."
fi
