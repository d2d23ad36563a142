package diskbox

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/store"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A scheduleImage is a disk after a power cut, and how far two schedules were then: firings that
// had begun, and that were answered.
type scheduleImage struct {
	mem          *vfs.MemFS
	began, ended [2]int
}

// scheduleCuts takes images while schedules are fired.
type scheduleCuts struct {
	mu     sync.Mutex // guards the fields below
	disk   *storetest.Disk
	rng    *rand.Rand
	now    scheduleImage
	images []scheduleImage
}

func (c *scheduleCuts) cut(storetest.Operation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	image := c.now
	image.mem = c.disk.Image(c.rng)
	c.images = append(c.images, image)
	return nil
}

func (c *scheduleCuts) note(counts func(*scheduleImage) *[2]int, schedule, firing int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts(&c.now)[schedule] = firing
}

func openImage(t *testing.T, mem *vfs.MemFS) *Backend {
	t.Helper()
	b, err := Open(t.Context(), "queues", &Options{
		fs: storetest.DiskFrom(mem).FS(), small: true,
		OnFail: func(err error) { t.Errorf("the store has failed: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPowerCutKeepsFiringWholeOrNot cuts the power before each operation of the disk while two
// schedules are fired. Each firing sends a message and changes its schedule: an image has both or
// neither, all that were answered, and none that has not begun.
func TestPowerCutKeepsFiringWholeOrNot(t *testing.T) {
	volume.Repeats(t)
	firings := volume.Of(40)
	cuts := &scheduleCuts{disk: storetest.NewDisk(), rng: rand.New(rand.NewPCG(1, 1))}
	b := openImage(t, cuts.disk.Mem())
	if err := b.Close(); err != nil { // its files are there
		t.Fatal(err)
	}
	cuts.disk.Before(cuts.cut)
	b, err := Open(t.Context(), "queues", &Options{fs: cuts.disk.FS(), small: true})
	if err != nil {
		t.Fatal(err)
	}
	q, err := b.OpenQueue(t.Context(), "jobs")
	if err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	for schedule := range 2 {
		clients.Go(func() { fireMany(t, q, cuts, schedule, firings) })
	}
	clients.Wait()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for _, image := range cuts.images {
		checkScheduleImage(t, &image)
	}
	t.Logf("%d power cuts in %d firings", len(cuts.images), 2*firings)
}

func scheduleName(schedule int) string { return fmt.Sprint("schedule ", schedule) }

func fireMany(t *testing.T, q driver.Queue, cuts *scheduleCuts, schedule, firings int) {
	revision := uint64(0)
	for n := 1; n <= firings; n++ {
		cuts.note(func(i *scheduleImage) *[2]int { return &i.began }, schedule, n)
		now, done, err := q.Fire(t.Context(), driver.Firing{
			Name: scheduleName(schedule), Revision: revision, Definition: []byte(strconv.Itoa(n)),
			Messages: []driver.DueMessage{{Outgoing: driver.Outgoing{Body: fmt.Appendf(nil, "%d %d", schedule, n)}}},
		})
		if err != nil || !done {
			t.Errorf("fire: done %v, error %v", done, err)
			return
		}
		revision = now.Revision
		cuts.note(func(i *scheduleImage) *[2]int { return &i.ended }, schedule, n)
	}
}

// checkScheduleImage opens an image and compares schedules with messages.
func checkScheduleImage(t *testing.T, image *scheduleImage) {
	b := openImage(t, image.mem)
	defer b.Close()
	q, err := b.OpenQueue(t.Context(), "jobs")
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]string)
	var messages [2]int
	for peeked, err := range q.Peek(t.Context(), driver.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids[string(peeked.Body)] = peeked.ID
		schedule, _, _ := strings.Cut(string(peeked.Body), " ")
		n, _ := strconv.Atoi(schedule)
		messages[n]++
	}
	var fired [2]int
	for s, err := range q.Schedules(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		schedule := int(s.Name[len(s.Name)-1] - '0')
		fired[schedule], _ = strconv.Atoi(string(s.Definition))
		if last := s.Runs[len(s.Runs)-1]; last.MessageID != ids[fmt.Sprintf("%d %s", schedule, s.Definition)] {
			t.Errorf("%s has the run %+v of message %s, which is not there", s.Name, last, s.Definition)
		}
	}
	for schedule, n := range fired {
		if n < image.ended[schedule] || n > image.began[schedule] || messages[schedule] != n || len(ids) != fired[0]+fired[1] {
			t.Errorf("schedule %d was fired %d times and %d messages are there, of %d to %d firings",
				schedule, n, messages[schedule], image.ended[schedule], image.began[schedule])
		}
	}
}

func TestDamagedScheduleIsFoundAndRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		q := openQueue(t, m, "jobs")
		for _, name := range []string{"good", "bad"} {
			if _, _, err := q.Fire(t.Context(), driver.Firing{Name: name, Definition: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		closeIt(t, m)
		meddle(t, m.disk, func(s *store.Store) { spoil(t, s, appendScheduleKey(nil, 1, "bad"), "damaged") })
		options := &Options{fs: m.disk.FS(), boot: bubbleClock{}, small: true}
		if _, err := Open(t.Context(), "queues", options); err == nil || !strings.Contains(err.Error(), "schedule") {
			t.Errorf("open: %v", err)
		}
		if result, err := Repair(t.Context(), "queues", options); err != nil || result.Removed != 1 {
			t.Errorf("repair: %+v, error %v", result, err)
		}
		if report, err := Check(t.Context(), "queues", options); err != nil || report.Schedules != 1 || len(report.Problems) > 0 {
			t.Errorf("check: %+v, error %v", report, err)
		}
	})
}
