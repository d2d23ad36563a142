package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
)

// keyBytes is what a record has besides the body: a key, an id, a checksum.
const keyBytes = 40

// diskSuite compares durable messages with the limits of the disk, and measures the cost
// of a backlog.
func diskSuite(r *report) {
	warnOfMemoryDisk(r.dir)
	if err := errors.Join(r.backlogs(), r.durable()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// warnOfMemoryDisk prints a warning if dir is not on a disk.
func warnOfMemoryDisk(dir string) {
	const tmpfs = 0x01021994
	var info syscall.Statfs_t
	if syscall.Statfs(dir, &info) == nil && info.Type == tmpfs {
		fmt.Printf("\n%s is kept in memory: what is measured there says nothing about disks; use -dir\n", dir)
	}
}

// durable compares rates, and counts how often a message waits for the disk.
func (r *report) durable() error {
	for _, batch := range []int{1, 10} {
		for _, callers := range []int{1, 8, 64, 512} {
			loads := []load{
				{name: "append+fdatasync", open: bareLog(batch)},
				{name: "Pebble, Set and sync", open: bareEngine(batch)},
				{name: "diskbox send", open: diskboxLoad(batch, sendCaller)},
				{name: "diskbox cycle", open: diskboxLoad(batch, cycleCaller)},
			}
			if batch == 1 && callers >= 64 {
				loads[2].atLeast = 0.5
			}
			paces, err := r.race(loads, callers, batch)
			if err != nil {
				return err
			}
			title := fmt.Sprintf("durable messages of %d bytes, callers: %d", bodyBytes, callers)
			if batch > 1 {
				title += fmt.Sprintf(", batches of %d", batch)
			}
			r.show(title, loads, paces)
			if batch == 1 && callers == 1 {
				showWaits(paces[2], paces[3])
			}
		}
	}
	return nil
}

// showWaits checks how often one message waits for the disk on its way through a queue:
// the target is twice, for the send and for the ack. A lone caller shares no sync, and
// the engine writes once for each sync, so both its time and its writes show it. Neither
// is exact, because receiving takes time too and the runtime writes to wake itself, but
// a third wait would show as three.
func showWaits(sends, cycles []pace) {
	const most = 2.5
	ratios := make([]float64, len(sends))
	for i := range sends {
		ratios[i] = sends[i].rate / cycles[i].rate
	}
	ratio := median(ratios)
	fmt.Printf("  a cycle takes as long as %.2f sends; promised two waits for the disk: %s\n", ratio, kept(ratio <= most))
	if writes := middle(cycles, writesOf); writes > 0 {
		fmt.Printf("  a cycle writes %.2f times; promised two waits for the disk: %s\n", writes, kept(writes <= most))
	}
}

// bareLog only appends records of whole batches.
func bareLog(batch int) func(string) (*target, error) {
	return func(path string) (*target, error) {
		l, err := openGroupLog(path)
		if err != nil {
			return nil, err
		}
		record := make([]byte, batch*(keyBytes+bodyBytes))
		return &target{
			newCaller: func() func() error { return l.newCaller(record) },
			close:     l.close,
		}, nil
	}
}

// bareEngine sets keys in the storage engine of diskbox, with the same memory settings.
func bareEngine(batch int) func(string) (*target, error) {
	return func(path string) (*target, error) {
		db, err := pebble.Open(path, &pebble.Options{
			FormatMajorVersion: pebble.FormatNewest, Logger: silence{},
			MemTableSize: 32 << 20, MemTableStopWritesThreshold: 4, CacheSize: 64 << 20,
		})
		if err != nil {
			return nil, err
		}
		var last atomic.Uint64
		return &target{
			newCaller: func() func() error {
				key, value := make([]byte, keyBytes), make([]byte, bodyBytes)
				return func() error {
					b := db.NewBatch()
					for range batch {
						binary.BigEndian.PutUint64(key, last.Add(1))
						if err := b.Set(key, value, nil); err != nil {
							return err
						}
					}
					if err := b.Commit(pebble.Sync); err != nil {
						return err
					}
					return b.Close()
				}
			},
			close: db.Close,
		}, nil
	}
}

// silence is a logger that logs nothing.
type silence struct{}

func (silence) Infof(string, ...any)  {}
func (silence) Errorf(string, ...any) {}
func (silence) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

// diskboxLoad lets callers work on one queue.
func diskboxLoad(batch int, newCaller func(driver.Queue, int) func() error) func(string) (*target, error) {
	return func(path string) (*target, error) {
		backend, q, err := openDiskbox(path)
		if err != nil {
			return nil, err
		}
		return &target{
			newCaller: func() func() error { return newCaller(q, batch) },
			close:     backend.Close,
		}, nil
	}
}

func openDiskbox(path string) (*diskbox.Backend, driver.Queue, error) {
	ctx := context.Background()
	backend, err := diskbox.Open(ctx, path, nil)
	if err != nil {
		return nil, nil, err
	}
	q, err := backend.OpenQueue(ctx, "bench")
	if err != nil {
		return nil, nil, errors.Join(err, backend.Close())
	}
	return backend, q, nil
}

// sendCaller sends batches.
func sendCaller(q driver.Queue, batch int) func() error {
	ctx := context.Background()
	out := outgoing(batch)
	return func() error {
		_, err := q.Send(ctx, out)
		return err
	}
}

// takeCaller receives and acks batches.
func takeCaller(q driver.Queue, batch int) func() error {
	ctx := context.Background()
	request := driver.ReceiveRequest{Max: batch, Visibility: time.Minute}
	receipts := make([]driver.Receipt, batch)
	return func() error {
		got, err := q.Receive(ctx, request)
		if err != nil {
			return err
		}
		if len(got) != batch {
			return fmt.Errorf("received %d messages instead of %d", len(got), batch)
		}
		for i := range got {
			receipts[i] = got[i].Receipt
		}
		return q.Ack(ctx, receipts)
	}
}

// cycleCaller sends batches, and receives and acks as many messages. Each caller sends
// before it receives, so no caller finds the queue empty.
func cycleCaller(q driver.Queue, batch int) func() error {
	send, take := sendCaller(q, batch), takeCaller(q, batch)
	return func() error {
		if err := send(); err != nil {
			return err
		}
		return take()
	}
}

func outgoing(n int) []driver.Outgoing {
	out := make([]driver.Outgoing, n)
	for i := range out {
		out[i].Body = make([]byte, bodyBytes)
	}
	return out
}
