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
// With one thread for each, a tenant that keeps them busy makes all others wait for
// Go's scheduler, which looks for what has arrived from the network only every ten
// milliseconds then. What a tenant may run at once is bounded (OPS-4), so that a
// thread is left for others, and the kernel gives it a processor at once. GOMAXPROCS
// in the environment wins.
func spareThreads() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(threads(runtime.GOMAXPROCS(0)))
	}
}

// threads is how many there are for so many processors.
func threads(processors int) int {
	return min(threadsPerProcessor*processors, processors+moreThreads)
}
