//go:build race

package diskbox

const raceDetector = true
