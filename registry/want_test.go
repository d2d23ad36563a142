package registry_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
)

// wantError fails unless err is target, or nil where target is.
func wantError(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error is %v, want %v", err, target)
	}
}

func wantEqual[V comparable](t *testing.T, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// wantSame compares values that are not comparable, by how they print.
func wantSame(t *testing.T, what string, got, want any) {
	t.Helper()
	wantEqual(t, what, fmt.Sprintf("%q", got), fmt.Sprintf("%q", want))
}

// parallel runs f n times at once.
func parallel(n int, f func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(i) })
	}
	group.Wait()
}

func errorOf[V any](_ V, err error) error { return err }
