package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// operatorLife is how long the operator's token is good. It is made anew when the
// daemon starts with less than half of it left.
const operatorLife = 365 * 24 * time.Hour

// revocations are asked by the verifier and written by callers.
type revocations interface {
	capability.Revocations
	broker.Revoker
	All() iter.Seq[capability.Revocation]
}

// A keeper holds the keys of a daemon, its revocations and the operator's token:
// in files, or with amnesia in memory only.
type keeper struct {
	ring        *capability.KeyRing
	revocations revocations
	operator    capability.Token
	keyFile     string // empty if the keys are in memory
	fresh       bool   // the keys were made now
	close       func() error
	shared      *sharedRevocations // nil if this daemon is alone on its backend
	writes      bool               // changed keys are written to keyFile
	changing    sync.Mutex         // held while the keys are changed here
}

// share makes the revocations those of all daemons on a backend. It blocks on I/O.
func (k *keeper) share(ctx context.Context, opener driver.Opener, log *slog.Logger) error {
	shared, err := shareRevocations(ctx, k.revocations, opener, log)
	if err != nil {
		return err
	}
	closeOwn := k.close
	k.revocations, k.shared = shared, shared
	k.close = func() error { return errors.Join(shared.close(), closeOwn()) }
	return nil
}

// openKeeper reads the files of a daemon, and makes those that are missing.
func openKeeper(ctx context.Context, c *Config) (*keeper, error) {
	if *c.Amnesia {
		return openForgetful(c)
	}
	for _, path := range []string{c.KeyFile, c.TokenFile, c.RevocationFile} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
	}
	k := &keeper{keyFile: c.KeyFile, writes: true}
	var err error
	if k.ring, err = capability.ReadKeyFile(c.KeyFile); errors.Is(err, driver.ErrNotFound) {
		k.ring, k.fresh = capability.NewKeyRing(capability.NewKey()), true
		err = k.ring.WriteFile(c.KeyFile)
	}
	if err != nil {
		return nil, err
	}
	if err := k.readOperator(c.TokenFile); err != nil {
		return nil, err
	}
	file, err := capability.OpenFileRevocations(ctx, c.RevocationFile)
	if err != nil {
		return nil, err
	}
	k.revocations, k.close = file, file.Close
	return k, nil
}

// openForgetful keeps everything in memory. Keys that exist are read, because
// reading leaves no trace.
func openForgetful(c *Config) (*keeper, error) {
	k := &keeper{revocations: new(capability.MemoryRevocations), keyFile: c.KeyFile, close: func() error { return nil }}
	if c.KeyFile == "" {
		k.ring, k.fresh = capability.NewKeyRing(capability.NewKey()), true
	} else {
		var err error
		if k.ring, err = capability.ReadKeyFile(c.KeyFile); err != nil {
			return nil, err
		}
	}
	var err error
	k.operator, err = mintOperator(k.ring)
	return k, err
}

// readOperator reads the operator's token, or makes one if there is none, if it is
// not of our keys or of one that was retired, or if it ends soon.
func (k *keeper) readOperator(path string) error {
	token, err := capability.ReadTokenFile(path)
	switch {
	case err == nil:
		description := token.Inspect()
		known := slices.ContainsFunc(k.ring.Keys(), func(key capability.Key) bool {
			return key.ID() == description.Key && key.RetiredAt().IsZero()
		})
		if known && time.Until(description.ExpiresAt) > operatorLife/2 {
			k.operator = token
			return nil
		}
	case !errors.Is(err, driver.ErrNotFound):
		return err
	}
	if k.operator, err = mintOperator(k.ring); err != nil {
		return err
	}
	return k.operator.WriteFile(path)
}

func mintOperator(ring *capability.KeyRing) (capability.Token, error) {
	return ring.Mint("", capability.AllOperations(), capability.Topics(capability.AnyTopic()),
		capability.ExpiresAt(time.Now().Add(operatorLife)))
}

// RotateKeys implements broker.KeyKeeper.
func (k *keeper) RotateKeys(context.Context) error {
	return k.change(func() error { return k.ring.Rotate(capability.NewKey()) })
}

// RetireKey implements broker.KeyKeeper.
func (k *keeper) RetireKey(_ context.Context, id capability.KeyID, at time.Time) error {
	return k.change(func() error { return k.ring.Retire(id, at) })
}

// change changes the keys, and writes them where they were read from, unless this
// daemon writes no file. What somebody else has changed there is taken over first.
func (k *keeper) change(edit func() error) error {
	k.changing.Lock()
	defer k.changing.Unlock()
	if !k.writes {
		return edit()
	}
	if err := k.reload(); err != nil {
		return err
	}
	if err := edit(); err != nil {
		return err
	}
	return k.ring.WriteFile(k.keyFile)
}

// reload takes over what has changed in the file of keys: new ones, and what was
// decided about old ones.
func (k *keeper) reload() error {
	if k.keyFile == "" {
		return nil
	}
	read, err := capability.ReadKeyFile(k.keyFile)
	if err != nil {
		return fmt.Errorf("the keys cannot be read: %w", err)
	}
	now := read.Keys()
	has := func(list []capability.Key, id capability.KeyID) bool {
		return slices.ContainsFunc(list, func(key capability.Key) bool { return key.ID() == id })
	}
	for _, key := range slices.Backward(now) {
		if !has(k.ring.Keys(), key.ID()) {
			if err := k.ring.Rotate(key); err != nil {
				return err
			}
		}
	}
	for _, key := range now[1:] {
		if !key.RetiredAt().IsZero() {
			if err := k.ring.Retire(key.ID(), key.RetiredAt()); err != nil {
				return err
			}
		}
	}
	for _, key := range k.ring.Keys() {
		if !has(now, key.ID()) {
			if err := k.ring.Remove(key.ID()); err != nil {
				return err
			}
		}
	}
	return nil
}
