package replytest

import (
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/slotstore"
)

// StoreOf returns the reply store of a backend, or one in memory for a backend that has none.
func StoreOf(backend driver.Opener) driver.ReplyStore {
	switch b := backend.(type) {
	case *spoiledBackend:
		return b.store
	case interface {
		Replies() driver.LinkedReplyStore
	}:
		return b.Replies()
	case interface {
		Replies(maxSlots int) driver.LinkedReplyStore
	}:
		return b.Replies(0)
	}
	return slotstore.New(slotstore.Options{})
}
