//go:build !race

package capability

const raceDetector = false
