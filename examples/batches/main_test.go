package main

import (
	"strings"
	"testing"
	"testing/synctest"
)

func TestBatchesInsertAllButOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := run(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != "999 rows in 10 calls, 1 dead, 0 left\n" {
			t.Errorf("it says %s", out.String())
		}
	})
}
