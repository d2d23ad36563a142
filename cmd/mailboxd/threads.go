package main

import (
	"os"
	"runtime"
)

// Threads for each processor, and at most this many more than processors.
const (
	threadsPerProcessor = 4
	moreThreads         = 12
)

// spareThreads lets Go code run on more threads than there are processors.
//
// With one thread per processor, a tenant that keeps them busy makes all others wait for
// Go's scheduler, which then polls the network only every ten
// milliseconds. The concurrency of a tenant is bounded (OPS-4), so that a
// thread is left for others, and the kernel schedules it at once. GOMAXPROCS
// in the environment wins.
func spareThreads() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(threads(runtime.GOMAXPROCS(0)))
	}
}

// threads returns the number of threads for a number of processors.
func threads(processors int) int {
	return min(threadsPerProcessor*processors, processors+moreThreads)
}
