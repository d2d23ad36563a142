package console_test

import (
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// TestDoctorFindsProblemsFromInside is CON-2.
func TestDoctorFindsProblemsFromInside(t *testing.T) {
	d := open(t)
	for name, config := range map[string]driver.Config{
		"endless": {MaxDeliveries: driver.Off}, "unbounded": {MaxDead: driver.Off}, "full": {MaxMessages: 2}, "fine": {},
	} {
		if err := d.caller("").Configure(t.Context(), name, config); err != nil {
			t.Fatal(err)
		}
	}
	d.send("", "full", "x")
	d.send("", "full", "y")
	soon, err := d.ring.Mint("", capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	b := d.logIn(soon)
	a := b.get("health")
	b.expect(a, 200, "1 queue without a delivery limit: endless", "1 queue without a bound of dead letters: unbounded", "full (messages: 2 of 2)", "the token of this session expires at", "the daemon is ready (macronode)")
	b.lacks(a, "fine<", "fine,")
	reader := d.logIn(d.mint("", []capability.Operation{capability.OpStats}, capability.AnyQueue()))
	a = reader.get("health")
	reader.expect(a, 200, "checking queues needs a token for admin")
	reader.lacks(a, "endless")
}
