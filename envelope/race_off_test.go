//go:build !race

package envelope

const raceDetector = false
