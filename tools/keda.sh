#!/usr/bin/env bash
# Copies the source of KEDA for the test of deploy/keda, with two of its scalers: all of them would
# be 3,254 packages, and these are 1,248.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(awk '$1 == "github.com/kedacore/keda/v2" { print $2; exit }' deploy/keda/go.mod)
copy=.cache/keda
if [[ -f $copy/complete && $(<$copy/complete) == "$version" ]]; then
	exit
fi
source=$(cd tools && ${GO:-go} mod download -json "github.com/kedacore/keda/v2@$version" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
rm -rf $copy
mkdir -p $copy
cp -R "$source"/. $copy/
chmod -R u+w $copy
find $copy/pkg/scalers -maxdepth 1 -name '*.go' ! -name scaler.go ! -name aws_sqs_queue_scaler.go ! -name metrics_api_scaler.go -delete
# A constant that the file of another scaler has.
printf 'package scalers\n\nconst %s\n' "$(sed -n 's/^\t\(externalMetricType\) *\(= .*\)$/\1 \2/p' "$source"/pkg/scalers/azure_queue_scaler.go)" > $copy/pkg/scalers/constants.go
echo "$version" > $copy/complete
