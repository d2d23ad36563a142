package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	k := &keeper{keyFile: c.KeyFile}
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
