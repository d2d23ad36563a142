package membox

import (
	"time"

	"github.com/mailboxmq/mailbox/internal/host"
)

// NewWithClock is New with another wall clock.
func NewWithClock(wall func() time.Time) *Backend {
	return &Backend{host: host.New(host.Options{Wall: wall})}
}
