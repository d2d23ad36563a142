package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// An effort is what this process has used so far.
type effort struct {
	allocs, bytes uint64
	writes        uint64 // system calls that write; 0 where they are not counted
	processor     time.Duration
}

func spent() effort {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return effort{
		allocs: m.Mallocs, bytes: m.TotalAlloc,
		writes: field("/proc/self/io", "syscw:"), processor: processorTime(),
	}
}

// A footprint is the memory of this process without garbage: that of the Go heap, and
// the total of the operating system. The store keeps its tables outside the heap.
type footprint struct{ heap, resident uint64 }

func held() footprint {
	heap := heap()
	debug.FreeOSMemory()
	return footprint{heap: heap, resident: 1024 * field("/proc/self/status", "VmRSS:")}
}

// field reads a number from a file in /proc.
func field(file, name string) uint64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) > 1 && words[0] == name {
			value, _ := strconv.ParseUint(words[1], 10, 64) // 0 if it is not a number
			return value
		}
	}
	return 0
}

// settle waits until this process is nearly idle, for example until a store has compacted,
// for at most half a minute.
func settle() {
	const look = 250 * time.Millisecond
	for range 120 {
		before := processorTime()
		time.Sleep(look)
		if processorTime()-before < look/50 {
			return
		}
	}
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
