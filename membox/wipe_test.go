package membox_test

import (
	"bytes"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// TestAckedMessageIsWiped looks at the memory of a body by its address, which keeps nothing
// alive. The message is large, so that no other object comes to lie there.
func TestAckedMessageIsWiped(t *testing.T) {
	const size = 8 << 20
	backend := membox.New(&membox.Options{MaxBodyBytes: size, Wipe: true})
	defer backend.Close()
	q, err := backend.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: bytes.Repeat([]byte("secret"), size/6)}}); err != nil {
		t.Fatal(err)
	}
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	if err != nil || len(got) != 1 {
		t.Fatal(len(got), err)
	}
	body := got[0].Body
	if err := q.Ack(t.Context(), []driver.Receipt{got[0].Receipt}); err != nil {
		t.Fatal(err)
	}
	got = nil
	runtime.GC()
	if !bytes.HasPrefix(body, []byte("secret")) {
		t.Fatal("the body was wiped while a receiver had it")
	}
	hidden := ^uintptr(unsafe.Pointer(unsafe.SliceData(body)))
	body = nil
	wiped := func() bool {
		runtime.GC()
		address := ^hidden
		return **(**byte)(unsafe.Pointer(&address)) == 0
	}
	for until := time.Now().Add(time.Minute); !wiped(); {
		if time.Now().After(until) {
			t.Fatal("the body of an acked message is still in memory")
		}
	}
}
