//go:build race

package gates_test

// raceEnabled says that the race detector slows this process down.
const raceEnabled = true
