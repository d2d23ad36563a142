package drivertest

import "testing"

func TestModelKeepsItsPromisesUnderLoad(t *testing.T) {
	RunConcurrent(t, modelBackend(nil), Load{Messages: 2_000})
}
