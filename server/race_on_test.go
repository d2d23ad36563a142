//go:build race

package server_test

// raceEnabled: the race detector makes everything slower.
const raceEnabled = true
