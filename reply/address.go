package reply

import (
	crand "crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

// addresses makes slot addresses with ids that cannot be guessed: a caller that knows
// an id can read and write the answer. The generator is cryptographically strong;
// reading the operating system's for every request would cost more than the rest of
// it.
type addresses struct {
	mu     sync.Mutex // guards random
	random *rand.ChaCha8
}

func newAddresses() *addresses {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails, see crypto/rand
	return &addresses{random: rand.NewChaCha8(seed)}
}

// idBytes is the number of random bytes in an id.
const idBytes = 16

var addressPrefix = driver.SlotAddress("")

// next returns a new id and its address, which share their memory.
func (a *addresses) next() (id, address string) {
	var random [idBytes]byte
	a.mu.Lock()
	binary.LittleEndian.PutUint64(random[:8], a.random.Uint64())
	binary.LittleEndian.PutUint64(random[8:], a.random.Uint64())
	a.mu.Unlock()
	text := make([]byte, 0, 64)
	text = append(text, addressPrefix...)
	text = hex.AppendEncode(text, random[:])
	address = string(text)
	return address[len(addressPrefix):], address
}
