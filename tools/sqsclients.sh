#!/usr/bin/env bash
# Installs clients of SQS by others, which tests let talk to the daemon: @aws-sdk/client-sqs and
# sqs-consumer from npm, and awscli, boto3 and Celery with its SQS broker from Debian.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/install.bash

give_up() {
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
for module in boto3 celery kombu pycurl; do
	knows "$module" || packages+=("python3-$module")
done
if ((${#packages[@]} > 0)); then
	install_debian "${packages[@]}" || give_up "apt-get could not install them."
	speaks_aws || give_up "apt-get installed awscli, but aws does not run."
	knows 'boto3, celery, kombu, pycurl' || give_up "apt-get installed them, but $python does not know them."
fi

install_npm sqsclients 20
