package ruletest

import (
	"testing"
	"time"
)

// RunLive runs the cases of a rule on a backend that lives outside of this process,
// and so in real time. The cases mostly wait, and run in parallel. They have no
// virtual time to pass: use Eventually and Settle.
func RunLive(t *testing.T, opener Opener, id string, cases []Case) {
	for _, c := range cases {
		t.Run(id+" "+c.Name+"/"+opener.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(NewEnv(t, opener.Open(t, t.TempDir())))
		})
	}
}

// eventuallyTimeout is how long Eventually waits. A machine that is busy with other
// tests may need it.
const eventuallyTimeout = 2 * time.Minute

// Eventually waits in real time until happened returns true, and ends the case if it
// does not in time.
func (s *Env) Eventually(what string, happened func() bool) {
	s.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	limit := time.NewTimer(eventuallyTimeout)
	defer limit.Stop()
	for !happened() {
		select {
		case <-look.C:
		case <-limit.C:
			s.Fatalf("%s: not after %v", what, eventuallyTimeout)
		}
	}
}

// Settle lets real time pass, for cases that expect that nothing happens.
func (s *Env) Settle(d time.Duration) { <-time.After(d) }
