// Package ruletest runs test cases of the rules of docs/semantics.md, in virtual
// time, on each backend in this process.
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

// A Backend is a backend whose queues can be configured.
type Backend interface {
	driver.Opener
	driver.Admin
	io.Closer
}

// An Opener opens an empty backend for a case, which closes it. The folder belongs
// to the backend and is removed afterwards.
type Opener struct {
	Name string
	Open func(t *testing.T, folder string) Backend
}

// Openers returns the backends that Run uses.
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
	Run  func(s *Env)
}

// Run runs the cases of the rule with this id on every backend.
func Run(t *testing.T, id string, cases []Case) {
	for _, opener := range Openers() {
		RunOn(t, opener, id, cases)
	}
}

// RunOn runs the cases of a rule on one backend.
func RunOn(t *testing.T, opener Opener, id string, cases []Case) {
	for _, c := range cases {
		t.Run(id+" "+c.Name+"/"+opener.Name, func(t *testing.T) {
			folder := t.TempDir() // outside the bubble, so that it is removed after the backend is closed
			synctest.Test(t, func(t *testing.T) { c.Run(NewEnv(t, opener.Open(t, folder))) })
		})
	}
}

// An Env is what a case runs in: a backend, faults, and a log.
type Env struct {
	*testing.T
	Backend Backend
	// Faults wraps Backend. Cases open mailboxes on it and make it fail.
	Faults *mailboxtest.Faults
	Logs   *Log
	Began  time.Time
}

// NewEnv returns an environment for a test in virtual time. It closes the backend
// when the test ends.
func NewEnv(t *testing.T, backend Backend) *Env {
	t.Cleanup(func() {
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Env{T: t, Backend: backend, Faults: mailboxtest.NewFaults(backend), Logs: &Log{}, Began: time.Now()}
}

// Configure configures a queue.
func (s *Env) Configure(name string, config driver.Config) {
	s.Helper()
	s.Must(s.Backend.ConfigureQueue(s.Context(), name, config))
}

// Pass lets virtual time pass, and waits until all goroutines are idle.
func (s *Env) Pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// At lets virtual time pass until d after the beginning.
func (s *Env) At(d time.Duration) {
	s.Helper()
	if gone := time.Since(s.Began); gone > d {
		s.Fatalf("it is %v already, not %v", gone, d)
	}
	s.Pass(d - time.Since(s.Began))
}

// Must ends the case if there is an error.
func (s *Env) Must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// Is checks that errors.Is(err, target).
func (s *Env) Is(err, target error) {
	s.Helper()
	if !errors.Is(err, target) {
		s.Errorf("error is %v, want %v", err, target)
	}
}

// Equal checks that got equals want.
func Equal[V comparable](t testing.TB, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}
