// Package ruletest plays the cases of rules of docs/semantics.md, in virtual time,
// on each backend that lives in it.
package ruletest

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
)

// A Backend is one that queues can be configured on.
type Backend interface {
	driver.Opener
	driver.Admin
	io.Closer
}

// An Opener makes an empty backend for a case, which closes it. The folder is the
// backend's own, and is removed after that.
type Opener struct {
	Name string
	Open func(t *testing.T, folder string) Backend
}

// Openers are the backends that Play plays on.
func Openers() []Opener {
	return []Opener{
		{"memory", func(*testing.T, string) Backend { return membox.New(nil) }},
		{"disk", func(t *testing.T, folder string) Backend {
			disk, err := diskbox.Open(t.Context(), folder, &diskbox.Options{Sync: diskbox.SyncNone})
			if err != nil {
				t.Fatal(err)
			}
			return disk
		}},
	}
}

// A Case is one case of a rule.
type Case struct {
	Name string
	Play func(s *Stage)
}

// Play plays the cases of the rule with this id on every backend.
func Play(t *testing.T, id string, cases []Case) {
	for _, opener := range Openers() {
		PlayOn(t, opener, id, cases)
	}
}

// PlayOn plays the cases of a rule on one backend.
func PlayOn(t *testing.T, opener Opener, id string, cases []Case) {
	for _, c := range cases {
		t.Run(id+" "+c.Name+"/"+opener.Name, func(t *testing.T) {
			folder := t.TempDir() // outside the bubble, so that it is removed when all is closed
			synctest.Test(t, func(t *testing.T) { c.Play(NewStage(t, opener.Open(t, folder))) })
		})
	}
}

// A Stage is what a case is played on.
type Stage struct {
	*testing.T
	Backend Backend
	// Faults is what mailboxes stand on, so that it can break under them.
	Faults  *mailboxtest.Faults
	Journal *Journal
	Began   time.Time
}

// NewStage returns a stage for a test in virtual time. It closes the backend when
// the test ends.
func NewStage(t *testing.T, backend Backend) *Stage {
	t.Cleanup(func() {
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Stage{T: t, Backend: backend, Faults: mailboxtest.NewFaults(backend), Journal: &Journal{}, Began: time.Now()}
}

// Configure configures a queue.
func (s *Stage) Configure(name string, config driver.Config) {
	s.Helper()
	s.Must(s.Backend.ConfigureQueue(s.Context(), name, config))
}

// Pass lets virtual time pass, and everybody do what there is to do then.
func (s *Stage) Pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// At lets virtual time pass until so long after the beginning.
func (s *Stage) At(d time.Duration) {
	s.Helper()
	if gone := time.Since(s.Began); gone > d {
		s.Fatalf("it is %v already, not %v", gone, d)
	}
	s.Pass(d - time.Since(s.Began))
}

// Must ends the case if there is an error.
func (s *Stage) Must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// Is checks that an error is another.
func (s *Stage) Is(err, target error) {
	s.Helper()
	if !errors.Is(err, target) {
		s.Errorf("error is %v, want %v", err, target)
	}
}

// Equal checks that got is what was wanted.
func Equal[V comparable](t testing.TB, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}
