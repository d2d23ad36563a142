package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestOrdersCommitWithTheirMessages runs the program twice on one table (PG-2).
func TestOrdersCommitWithTheirMessages(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	for range 2 {
		var out strings.Builder
		if err := run(t.Context(), &out, pool); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		slices.Sort(lines[1 : len(lines)-2]) // two transactions are in the order in which they were found
		const want = `tea again: refused, and no message is sent
cake: delivery 1, shipped: false
cake: delivery 2, shipped: true
tea: delivery 1, shipped: true
tea: tried 1, shipped 1
cake: tried 2, shipped 1`
		if got := strings.Join(lines, "\n"); got != want {
			t.Errorf("it says\n%s\nwant\n%s", got, want)
		}
	}
}
