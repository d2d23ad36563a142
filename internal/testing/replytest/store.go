package replytest

import (
	"fmt"
	"reflect"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/replyslot"
	"github.com/mailboxmq/mailbox/internal/slotstore"
)

// StoreOf returns the reply store of a backend, or one in memory for a backend that has none.
func StoreOf(backend driver.Opener) driver.ReplyStore {
	if b, ok := backend.(*spoiledBackend); ok {
		return b.store
	}
	if store := replyslot.StoreOf(backend, 0); store != nil {
		return store
	}
	if reflect.ValueOf(backend).MethodByName("Replies").IsValid() {
		panic(fmt.Sprintf("%T has a reply store that replyslot.StoreOf does not know", backend)) // a mistake of the test, which has no way to fail here
	}
	return slotstore.New(slotstore.Options{})
}
