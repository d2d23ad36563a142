package main

import (
	"strings"
	"testing"
	"testing/synctest"
)

func TestKindsAreHandledByTheirHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := run(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		const want = `mail to ada: your tea is ready
0%: page 1 of "drinks of the week"
33%: page 2 of "drinks of the week"
67%: page 3 of "drinks of the week"
dead, reason parse: kind "riddle"
`
		if out.String() != want {
			t.Errorf("it says %s", out.String())
		}
	})
}
