package main

import "testing"

func TestSmallMachineHasSpareThreads(t *testing.T) {
	for processors, want := range map[int]int{1: 4, 2: 8, 4: 16, 8: 20, 64: 76} {
		if got := threads(processors); got != want {
			t.Errorf("%d threads for %d processors, want %d", got, processors, want)
		}
	}
}
