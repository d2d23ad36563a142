package volume

// Of is how many of n are done: all, or a quarter under the race detector.
func Of(n int) int {
	if RaceDetector {
		return max(n/4, 1)
	}
	return n
}
