package replyslot

import "github.com/mailboxmq/mailbox/driver"

// StoreOf returns the reply store of a backend, or nil if it has none: the result of its method Replies, in any of the forms
// that backends have. maxSlots bounds the slots of a store that takes a bound; 0 means its default. It does no I/O.
func StoreOf(backend driver.Opener, maxSlots int) driver.ReplyStore {
	switch b := backend.(type) {
	case interface{ Replies() driver.ReplyStore }:
		return b.Replies()
	case interface {
		Replies() driver.LinkedReplyStore
	}:
		return b.Replies()
	case interface {
		Replies(maxSlots int) driver.ReplyStore
	}:
		return b.Replies(maxSlots)
	case interface {
		Replies(maxSlots int) driver.LinkedReplyStore
	}:
		return b.Replies(maxSlots)
	}
	return nil
}
