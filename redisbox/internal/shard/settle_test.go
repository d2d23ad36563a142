package shard

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

func TestAcksOfOneBundleAreOneArgument(t *testing.T) {
	t.Parallel()
	const first = 3 * NoncesPerCall
	id := func(n int) string { return fmt.Sprintf("%0*d", ident.TextLen, n) }
	var settles []*SettleOp
	for n, what := range []string{"a", "a", "n", "a", "a", "a"} {
		op := NewSettleOp(t.Context(), nil)
		op.Add(0, what, driver.Receipt{Handle: id(n), Nonce: first + bundleMax - 4 + uint64(n)}, "")
		settles = append(settles, op)
	}
	args, pairs := appendSettlements(nil, settles)
	how := func(what string, bundle byte, numbers ...byte) string {
		return what + PackDoubles(first) + string(append([]byte{bundle}, numbers...))
	}
	want := []string{
		id(0) + id(1), how("a", 0, 12, 13), id(2), how("n", 0, 14), id(3), how("a", 0, 15), id(4) + id(5), how("a", 1, 0, 1),
	}
	if pairs != 4 || !slices.Equal(args, want) {
		t.Errorf("%d pairs: got %q, want %q", pairs, args, want)
	}
}

func TestAnswersCountTowardsBytesOfCall(t *testing.T) {
	server := NewServer(nil, Options{})
	bucket := NewBucket(server, 0, "w", 1, func() bool { return false })
	op := &SettleOp{Positions: []int{0}}
	if elements, bytes := op.size(); elements != 1 || bytes != 0 {
		t.Errorf("an ack has %d elements and %d bytes, want 1 and 0", elements, bytes)
	}
	op.Answer = bucket.NewAnswer("id", driver.Answer{Body: make([]byte, maxBytes)})
	if _, bytes := op.size(); bytes < maxBytes {
		t.Errorf("an ack with an answer has %d bytes, want %d or more", bytes, maxBytes)
	}
}
