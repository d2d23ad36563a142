package ruletest

import (
	"testing"
	"time"
)

// PlayLive plays the cases of a rule on a backend that lives outside of this
// process, and so in real time. They mostly wait, and run in parallel. Their stages
// have no virtual time to pass: use Eventually and Settle.
func PlayLive(t *testing.T, opener Opener, id string, cases []Case) {
	for _, c := range cases {
		t.Run(id+" "+c.Name+"/"+opener.Name, func(t *testing.T) {
			t.Parallel()
			c.Play(NewStage(t, opener.Open(t, t.TempDir())))
		})
	}
}

// patience is how long Eventually waits. A machine that is busy with other tests
// may need it.
const patience = 20 * time.Second

// Eventually waits in real time for something that must happen soon, and ends the
// case if it does not.
func (s *Stage) Eventually(what string, happened func() bool) {
	s.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !happened() {
		select {
		case <-look.C:
		case <-limit.C:
			s.Fatalf("%s: not after %v", what, patience)
		}
	}
}

// Settle lets real time pass in which something that must not happen could.
func (s *Stage) Settle(d time.Duration) { <-time.After(d) }
