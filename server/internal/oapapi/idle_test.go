//go:build unix && !race

package oapapi_test

import (
	"encoding/binary"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// leftInUse returns heapAndStacks when what earlier tests have left is gone.
func leftInUse() int {
	left := heapAndStacks()
	for same := 0; same < 5; same++ {
		if now := heapAndStacks(); now < left-left/200 {
			left, same = now, 0
		}
	}
	return left
}

// TestIdleConnectionsNeedLittleMemory has connections with a receive that waits. The bound is
// that of heap and stack; what the collector and the allocator need is the rest of 8 KiB.
func TestIdleConnectionsNeedLittleMemory(t *testing.T) {
	const connections, bound = 500, 7680
	d := newDaemon(t, membox.New(nil), oapapi.Options{RestAfter: time.Millisecond})
	defer d.stop(t)
	d.make(t, "orders")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.serveOn(t, l)
	before := leftInUse()
	clients := make([]int, connections)
	for i := range clients {
		clients[i] = d.waitIdle(t, l.Addr().String(), uint64(i))
	}
	defer func() {
		for _, client := range clients {
			_ = syscall.Close(client)
		}
	}()
	each := 0
	for late := time.Now().Add(2 * time.Minute); time.Now().Before(late); {
		if each = (heapAndStacks() - before) / connections; each <= bound {
			t.Logf("%d bytes a connection", each)
			return
		}
	}
	t.Errorf("an idle connection needs %d bytes, want at most %d", each, bound)
}

// waitIdle opens a connection that receives and gets nothing. It returns the file of the
// client, which needs no memory of this process.
func (d *daemon) waitIdle(t *testing.T, address string, producer uint64) (file int) {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	r := newRaw(t, d, nc)
	r.startAs([16]byte(binary.BigEndian.AppendUint64(make([]byte, 8), producer+1)))
	req := driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour}
	r.send(requestHeader(oap.OpReceive, 5), nil, oap.AppendReceive(nil, r.open("orders"), req))
	<-r.written
	system, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failure error
	err = system.Control(func(fd uintptr) { file, failure = syscall.Dup(int(fd)) })
	if err != nil || failure != nil {
		t.Fatal(err, failure)
	}
	return file
}
