package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// maxPageBytes bounds every page, however much there is to show.
const maxPageBytes = 1 << 20

// Bounds of processor time over 10,000 queues, one of which has 1,000,000 messages: of a page, and of live
// overviews over a minute, of one viewer and of a hundred.
const (
	maxPageTime     = 200 * time.Millisecond
	maxFurtherTime  = 3100 * time.Millisecond // of a look that the viewer has asked to take three seconds
	maxLiveTime     = 600 * time.Millisecond
	maxHundredTimes = 2500 * time.Millisecond
)

// TestPagesOfLargeDaemonStaySmall (CON-2): every screen over 200 queues, one of which has 20,000 messages, is
// smaller than 1 MiB; with MAILBOX_VOLUME=soak over 10,000 queues, one of which has 1,000,000 messages, and an hour of
// history. At length it bounds processor time, which a busy machine changes little: for each screen that of its
// handler, the median of three, and for live overviews that of the whole process over a minute.
func TestPagesOfLargeDaemonStaySmall(t *testing.T) {
	volume.Measures(t)
	messages := volume.Count(t, 20_000, 1_000_000)
	config := driver.Config{MaxMessages: 2 * messages, MaxDead: messages, MaxInFlight: messages}
	t.Run("memory", func(t *testing.T) {
		backend := membox.New(&membox.Options{Defaults: config})
		testLargePages(t, backend, messages)
	})
	t.Run("disk", func(t *testing.T) {
		backend, err := diskbox.Open(t.Context(), t.TempDir(), &diskbox.Options{Defaults: config, Sync: diskbox.SyncNone})
		if err != nil {
			t.Fatal(err)
		}
		testLargePages(t, backend, messages)
	})
}

func testLargePages(t *testing.T, backend backend, messages int) {
	for n := range messages / 100 { // a broker limits how fast clients make queues
		if err := backend.ConfigureQueue(t.Context(), queueName(n), driver.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	d := openOn(t, backend)
	d.console = console.New(console.Options{Broker: d.broker}) // with the limits of a daemon
	t.Cleanup(d.console.Close)
	ids := d.fillMany(messages)
	reader := d.logIn(d.mint("", nil))
	for _, page := range d.largePages(ids) {
		var took, used [3]time.Duration
		size := 0
		for i := range took {
			runtime.LockOSThread()
			began, before := time.Now(), processorTime(t, ofThread)
			a := reader.get(page)
			took[i], used[i], size = time.Since(began), processorTime(t, ofThread)-before, len(a.body)
			runtime.UnlockOSThread()
			if a.status != http.StatusOK || size > maxPageBytes {
				t.Errorf("%s: status %d, %d bytes, want at most %d", shortPage(page), a.status, size, maxPageBytes)
			}
		}
		slices.Sort(used[:]) // it may have helped the garbage collector in one of them
		most := maxPageTime
		if strings.Contains(page, "look=further") {
			most = maxFurtherTime
		}
		if volume.AtLength() && used[1] > most {
			t.Errorf("%s: processor %v, want at most %v", shortPage(page), ms(used[1]), most)
		}
		t.Logf("%-60s %6d bytes, first %v, then %v and %v; processor %v", shortPage(page), size, ms(took[0]), ms(took[1]), ms(took[2]), ms(used[1]))
	}
	if volume.AtLength() {
		for streams, most := range map[int]time.Duration{1: maxLiveTime, 100: maxHundredTimes} {
			used := d.liveOverviews(streams)
			t.Logf("%d live overviews over a minute: processor %v", streams, ms(used))
			if used > most {
				t.Errorf("%d live overviews: processor %v over a minute, want at most %v", streams, ms(used), most)
			}
		}
	}
}

func ms(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

func shortPage(page string) string {
	if len(page) > 60 {
		return page[:57] + "…"
	}
	return page
}

// liveOverviews returns the processor time of this many live streams of the overview over a minute.
func (d *env) liveOverviews(streams int) time.Duration {
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	runtime.GC() // of what has filled the queues; it would be due within the minute
	before := processorTime(d.t, syscall.RUSAGE_SELF)
	var all sync.WaitGroup
	for range streams {
		reader := d.logIn(d.mint("", nil))
		all.Go(func() {
			reader.do(httptest.NewRequestWithContext(ctx, http.MethodGet, prefix+"live?page=", nil))
		})
	}
	all.Wait()
	return processorTime(d.t, syscall.RUSAGE_SELF) - before
}

// largeIDs are ids of messages of a filled daemon.
type largeIDs struct{ first, middle, last, dead, large string }

// historyHour is how many points the history of an hour has.
const historyHour = int(time.Hour / broker.HistoryEvery)

// longQueue has a name that is long in an address, and messages whose every field is.
var longQueue = strings.Repeat("ü", 100)

func queueName(n int) string { return fmt.Sprintf("queue-%05d", n) }

// fillMany fills a queue for each 100 messages, and queue orders with all: a tenth delayed, a twentieth dead with a
// cause each, in groups and with priorities, and some in flight.
func (d *env) fillMany(messages int) (ids largeIDs) {
	d.t.Helper()
	for n := range messages / 100 {
		queue := queueName(n)
		d.send("", queue, "{}")
		switch {
		case n%20 == 0:
			d.schedule("", queue, "nightly")
			d.request("", fmt.Sprint("rates-", n), nil)
		case n%4 == 0:
			d.work("", queue, fmt.Sprintf("worker@host-%d:77", n), 1)
		case n%3 == 0:
			d.kill(queue, 1, words)
		}
	}
	ids = d.fillOrders(messages)
	long := strings.Repeat("<é ü>", 50)
	for range 2 {
		batch := make([]broker.Outgoing, 250)
		for i := range batch {
			batch[i].Body, batch[i].Group = []byte(long), long[:200]
		}
		if _, err := d.caller("").Send(d.t.Context(), longQueue, batch); err != nil {
			d.t.Fatal(err)
		}
		d.kill(longQueue, 250, func(i int) string { return long + words(i) })
	}
	ids.large = d.send("", "large", `{"a":[`+strings.Repeat(`"<<<<",`, 30_000)+`0]}`)
	for n := range historyHour {
		d.broker.Sample(d.t.Context(), time.Now().Add(time.Duration(n-historyHour+1)*broker.HistoryEvery))
	}
	return ids
}

func (d *env) fillOrders(messages int) (ids largeIDs) {
	c := d.caller("")
	for n := 0; n < messages; {
		batch := make([]broker.Outgoing, 250)
		for i := range batch {
			batch[i].Body = fmt.Appendf(nil, `{"order":%d,"total":129.90}`, n)
			batch[i].Attributes = map[string]string{"customer": fmt.Sprint("c-", n%1000)}
			batch[i].Group = fmt.Sprint("g-", n%5000)
			batch[i].Priority = n % 3
			if n%10 == 0 {
				batch[i].Delay = time.Hour
			}
			n++
		}
		sent, err := c.Send(d.t.Context(), "orders", batch)
		if err != nil {
			d.t.Fatal(err)
		}
		switch n {
		case 250:
			ids.first = sent[1].ID
		case messages / 2:
			ids.middle = sent[249].ID
		case messages:
			ids.last = sent[249].ID
		}
	}
	for n := 0; n < messages/20; n += 250 {
		ids.dead = d.kill("orders", 250, func(i int) string { return "boom " + words(n+i) })
	}
	for n := range 40 {
		d.work("", "orders", fmt.Sprintf("billing@host-%d:77", n), 20)
	}
	return ids
}

// kill dead-letters messages with an error each, and returns the id of one.
func (d *env) kill(queue string, n int, cause func(i int) string) string {
	d.t.Helper()
	c := d.caller("")
	got, err := c.Receive(d.t.Context(), queue, driver.ReceiveRequest{Max: n, Visibility: time.Minute})
	if err != nil || len(got) == 0 {
		d.t.Fatalf("received %d messages, %v", len(got), err)
	}
	var dead []broker.DeadLetterRequest
	for i, m := range got {
		dead = append(dead, broker.DeadLetterRequest{Receipt: m.Receipt, Reason: driver.ReasonFatal, Error: cause(i)})
	}
	if err := c.DeadLetter(d.t.Context(), queue, dead); err != nil {
		d.t.Fatal(err)
	}
	return got[0].ID
}

// words spells a number in letters: causes leave out digits.
func words(n int) string {
	return strings.NewReplacer("0", "a", "1", "b", "2", "c", "3", "d", "4", "e", "5", "f", "6", "g", "7", "h", "8", "i", "9", "j").Replace(fmt.Sprint(n))
}

// largePages are all screens of a filled daemon, those of messages with each filter.
func (d *env) largePages(ids largeIDs) []string {
	d.t.Helper()
	b := d.logIn(d.mint("", nil))
	_, cause, _ := strings.Cut(b.get("dead?queue=orders").body, "cause=")
	job, err := d.caller("").StartJob(d.t.Context(), broker.JobRequest{Queue: "orders", Action: broker.JobCount})
	for err == nil && job.State == broker.JobRunning { // its work is not that of a page
		<-time.After(time.Millisecond)
		job, err = d.caller("").Job(d.t.Context(), job.ID)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	long := url.QueryEscape(longQueue)
	pages := []string{
		"", "queues", "queues?page=7", "queues?q=queue-001", "queues?sort=dead", "workers", "workers?q=host-1", "dead", "dead?queue=orders", "dead?queue=orders&cause=" + cause[:12], "dead?queue=" + long,
		"jobs", "job?id=" + job.ID, "requests", "request?slot=rates-0", "schedules", "schedule?queue=" + queueName(0) + "&schedule=nightly", "access", "health",
		"confirm?do=purge&queue=orders", "confirm?do=redrive&queue=orders", "confirm?do=discard&queue=orders&cause=" + cause[:12], "confirm?do=pause&queue=orders",
		"message?queue=orders&id=" + ids.first, "message?queue=orders&id=" + ids.middle, "message?queue=orders&id=" + ids.last, "message?queue=orders&id=" + ids.dead, "message?queue=large&id=" + ids.large,
		"queue?name=" + long + "&limit=500", "groups?queue=orders", "groups?queue=orders&look=further", "queue?name=orders&order=newest&text=nowhere",
	}
	for _, filter := range []string{
		"", "limit=500", "state=ready", "state=delayed", "state=in_flight", "state=dead", "reason=parse", "attribute=customer%3Dnone", "attribute=customer%3Dc-777", "older=99h", "text=nowhere", "group=none", "group=g-4999",
		"priority=9", "id=" + ids.middle, "id=" + ids.dead,
	} {
		pages = append(pages, "queue?name=orders&"+filter)
	}
	return pages
}

// ofThread is RUSAGE_THREAD of Linux: the thread that asks.
const ofThread = 1

// processorTime is the user and system time of the process or of a thread.
func processorTime(t testing.TB, of int) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(of, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
