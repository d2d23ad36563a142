//go:build race

package capability

// raceDetector: the race detector allocates too, so allocations are not counted
// under it.
const raceDetector = true
