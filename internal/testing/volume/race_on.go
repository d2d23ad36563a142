//go:build race

package volume

// RaceDetector says whether the race detector is watching.
const RaceDetector = true
