package redisbox

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// BenchmarkFastPath shows what each part of the fast path of batch.lua is worth: it runs the
// same load with the fast path, without it, and without one of its parts. Decision 0031 has the
// figures. Compare the server's processor time, which depends less on the machine than the rate.
func BenchmarkFastPath(b *testing.B) {
	whole, wholeFull := shard.BatchScript, shard.BatchFullScript
	b.Cleanup(func() { shard.BatchScript, shard.BatchFullScript = whole, wholeFull })
	for _, load := range []struct {
		name    string
		workers int
		batch   int
	}{{"8+8 workers", 8, 1}, {"batches of 10", 2, 10}} {
		for _, variant := range []struct{ name, general string }{
			{"fast", ""},
			{"general", "true"},
			{"general settle", "PLAIN > SETTLE"},
			{"general send", "SPECIAL > PLAIN"},
			{"general receive", "demand > 0"},
		} {
			b.Run(load.name+"/"+variant.name, func(b *testing.B) {
				shard.BatchScript, shard.BatchFullScript = general(whole, variant.general), general(wholeFull, variant.general)
				benchmarkMessages(b, load.workers, load.batch)
			})
		}
	}
}

// general returns batch.lua without the parts of the fast path from the first that does what
// condition says: a call that it holds for takes the general path from there on.
func general(s *shard.Script, condition string) *shard.Script {
	part := map[string]string{"PLAIN > SETTLE": "fast_settle", "SPECIAL > PLAIN": "fast_send", "demand > 0": "fast_receive"}[condition]
	cut := *s
	switch {
	case part != "":
		text := shard.ReadScript(part)
		cut.Text = strings.Replace(cut.Text, text, "if "+condition+" then simple = false end\n"+text, 1)
	case condition != "":
		for _, part := range []string{"fast_slots", "fast_settle", "fast_send", "fast_receive", "fast_finish"} {
			cut.Text = strings.Replace(cut.Text, shard.ReadScript(part), "", 1)
		}
	}
	cut.Sha = shard.ShaOf(cut.Text)
	return &cut
}

// benchmarkMessages sends, receives and acks b.N messages.
func benchmarkMessages(b *testing.B, workers, batch int) {
	server := redistest.SharedServer(b)
	q := openQueue(b, open(b, connect(b, server.ClientOption()), &Options{Prefix: redistest.Prefix(b)}))
	body := make([]byte, 256)
	var sent, acked atomic.Int64
	var group sync.WaitGroup
	before := processorTime(b, server)
	b.ResetTimer()
	for range workers {
		group.Go(func() {
			for sent.Add(int64(batch)) <= int64(b.N+batch-1) {
				msgs := make([]driver.Outgoing, batch)
				for i := range msgs {
					msgs[i].Body = body
				}
				if _, err := q.Send(b.Context(), msgs); err != nil {
					b.Error(err)
					return
				}
			}
		})
		group.Go(func() {
			for acked.Load() < int64(b.N) {
				got, err := q.Receive(b.Context(), driver.ReceiveRequest{Max: batch, Visibility: hold, Wait: 20 * time.Millisecond})
				if err != nil {
					b.Error(err)
					return
				}
				receipts := make([]driver.Receipt, len(got))
				for i := range got {
					receipts[i] = got[i].Receipt
				}
				if err := q.Ack(b.Context(), receipts); err != nil {
					b.Error(err)
					return
				}
				acked.Add(int64(len(got)))
			}
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric((processorTime(b, server)-before)/float64(b.N)*1e6, "redis-µs/op")
}

// processorTime returns the seconds of processor time that a server has used.
func processorTime(b *testing.B, server *redistest.Server) (seconds float64) {
	b.Helper()
	info, err := server.Info(b.Context(), "cpu")
	if err != nil {
		b.Fatal(err)
	}
	for _, key := range []string{"used_cpu_user", "used_cpu_sys"} {
		n, err := strconv.ParseFloat(info[key], 64)
		if err != nil {
			b.Fatal(err)
		}
		seconds += n
	}
	return seconds
}
