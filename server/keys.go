package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/audit"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// operatorLife is how long the operator's token is valid. renewOperator replaces it when
// less than half of that is left.
const operatorLife = 365 * 24 * time.Hour

// revocations are the daemon's revocations: the verifier reads them, and callers of the
// API add to them.
type revocations interface {
	verify.Revocations
	broker.Revoker
	All() iter.Seq[revocation.Revocation]
	Len() int
	RevokesNarrowed() bool
}

// A keyStore holds the keys of a daemon, its revocations, its audit log and the
// operator's token: in files, or with amnesia in memory.
type keyStore struct {
	ring        *keyring.Ring
	revocations revocations
	audit       *audit.Log
	operator    atomic.Pointer[capability.Token]
	keyFile     string // empty if the keys are in memory
	tokenFile   string // of the operator's token; empty if that is in memory
	fresh       bool   // the keys were generated at this start
	close       func() error
	forget      func(since time.Time) error
	shared      *sharedRevocations // nil if this daemon is alone on its backend
	sharedAudit *sharedAudit       // as shared
	writes      bool               // changes of the keys are written to keyFile
	changing    sync.Mutex         // held while the keys or the operator's token are read from files or changed
}

// share shares the revocations and the audit log among all daemons on a backend. It blocks
// on I/O.
func (k *keyStore) share(ctx context.Context, opener driver.Opener, daemon func() string, log *slog.Logger) error {
	shared, err := shareRevocations(ctx, k.revocations, k.ring, opener, log)
	if err != nil {
		return fmt.Errorf("read revocations of other daemons: %w", err)
	}
	closeOwn := k.close
	k.revocations, k.shared = shared, shared
	k.close = func() error { return errors.Join(shared.close(), closeOwn()) }
	if k.sharedAudit, err = shareAudit(ctx, k.audit, opener, daemon, log); err != nil {
		return fmt.Errorf("open audit log of all daemons: %w", err)
	}
	k.close = func() error { return errors.Join(k.sharedAudit.close(), shared.close(), closeOwn()) }
	return nil
}

// auditLog returns the log that changes are recorded in.
func (k *keyStore) auditLog() auditLog {
	if k.sharedAudit != nil {
		return k.sharedAudit
	}
	return k.audit
}

// openKeyStore reads the files of a daemon, and creates missing ones.
func openKeyStore(ctx context.Context, c *Config) (*keyStore, error) {
	if *c.Amnesia {
		return openInMemory(c)
	}
	for _, path := range []string{c.KeyFile, c.TokenFile, c.RevocationFile} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
	}
	k := &keyStore{keyFile: c.KeyFile, tokenFile: c.TokenFile, writes: true}
	var err error
	if k.ring, k.fresh, err = keyring.ReadOrMake(ctx, c.KeyFile); err != nil {
		return nil, err
	}
	file, err := revocation.OpenFile(ctx, c.RevocationFile)
	if err != nil {
		return nil, err
	}
	k.revocations, k.close, k.forget = file, file.Close, file.ForgetBefore
	if err := k.dropObsolete(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if k.audit, err = audit.Open(filepath.Dir(c.RevocationFile), audit.DefaultLimit); err != nil {
		return nil, errors.Join(fmt.Errorf("open audit log: %w", err), file.Close())
	}
	k.close = func() error { return errors.Join(k.audit.Close(), file.Close()) }
	return k, nil
}

// openInMemory keeps everything in memory. It reads an existing key file, because
// amnesia forbids only writing.
func openInMemory(c *Config) (*keyStore, error) {
	revoked := new(revocation.Memory)
	k := &keyStore{revocations: revoked, audit: audit.InMemory(), keyFile: c.KeyFile, close: func() error { return nil }}
	k.forget = func(since time.Time) error {
		revoked.ForgetBefore(since)
		return nil
	}
	if c.KeyFile == "" {
		k.ring, k.fresh = keyring.New(keyring.NewKey()), true
	} else {
		var err error
		if k.ring, err = keyring.ReadFile(c.KeyFile); err != nil {
			return nil, err
		}
	}
	operator, err := mintOperator(k.ring)
	k.operator.Store(&operator)
	return k, err
}

// operatorToken returns the operator's token.
func (k *keyStore) operatorToken() capability.Token {
	if token := k.operator.Load(); token != nil {
		return *token
	}
	return capability.Token{}
}

// renewOperator reads the operator's token, and writes a new one if the file does not
// exist or isOperator does not accept the token. A token in memory stays. It blocks on
// I/O, and is safe to repeat.
func (k *keyStore) renewOperator(ctx context.Context, log *slog.Logger) error {
	if k.tokenFile == "" {
		return nil
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	token, err := capability.ReadTokenFile(k.tokenFile)
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return fmt.Errorf("read operator's token: %w", err)
	}
	if err != nil || !k.isOperator(ctx, token) {
		if token, err = mintOperator(k.ring); err == nil {
			err = token.WriteFile(k.tokenFile)
		}
		if err != nil {
			return fmt.Errorf("write operator's token: %w", err)
		}
		log.LogAttrs(ctx, slog.LevelInfo, "operator_token.written", slog.String("file", k.tokenFile), slog.String("token", token.ID().String()))
	}
	k.operator.Store(&token)
	return nil
}

// keepOperator is renewOperator for a running daemon: it logs an error, and the token
// stays until the next attempt.
func (k *keyStore) keepOperator(ctx context.Context, log *slog.Logger) {
	if err := k.renewOperator(ctx, log); err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "operator_token.not_written", slog.String("error", err.Error()))
	}
}

// isOperator reports whether a token can remain the operator's: it is valid, more than
// half of its life is left, and it allows the operation that was added last.
func (k *keyStore) isOperator(ctx context.Context, token capability.Token) bool {
	verifier := verify.New(k.ring, &verify.Options{Revocations: k.revocations})
	_, err := verifier.Authorize(ctx, token, verify.Request{Operation: capability.OpThrottle})
	return err == nil && time.Until(token.Inspect().ExpiresAt) > operatorLife/2
}

// mintOperator mints the operator's token, which names every operation.
func mintOperator(ring *keyring.Ring) (capability.Token, error) {
	return ring.Mint("", capability.EveryOperation(), capability.Queues(capability.AnyQueue()),
		capability.ExpiresAt(time.Now().Add(operatorLife)))
}

// dropObsolete drops revocations of tokens that no key accepts any more.
func (k *keyStore) dropObsolete() error { return k.forget(k.ring.AcceptsSince(time.Now())) }

// maintain drops obsolete revocations and renews the operator's token every
// maintainEvery, until ctx ends. It blocks.
func (k *keyStore) maintain(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(maintainEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := k.dropObsolete(); err != nil {
			log.LogAttrs(ctx, slog.LevelWarn, "revocations.not_compacted", slog.String("error", err.Error()))
		}
		k.keepOperator(ctx, log)
	}
}

// RotateKeys implements broker.KeyKeeper.
func (k *keyStore) RotateKeys(ctx context.Context) error {
	return k.change(ctx, func(ring *keyring.Ring) error { return ring.Rotate(keyring.NewKey()) })
}

// RetireKey implements broker.KeyKeeper.
func (k *keyStore) RetireKey(ctx context.Context, id capability.KeyID, at time.Time) error {
	return k.change(ctx, func(ring *keyring.Ring) error { return ring.Retire(id, at) })
}

// change edits the keys, in the key file unless this daemon writes none. It also adopts
// changes that another process has made in the file.
func (k *keyStore) change(ctx context.Context, edit func(*keyring.Ring) error) error {
	k.changing.Lock()
	defer k.changing.Unlock()
	if !k.writes {
		return edit(k.ring)
	}
	ring, err := keyring.Change(ctx, k.keyFile, edit)
	if err == nil {
		k.ring.Adopt(ring)
	}
	return err
}

// reload adopts the keys in the key file. It calls accept after it has read the file,
// and changes nothing if that returns an error.
func (k *keyStore) reload(accept func() error) error {
	if k.keyFile == "" {
		return accept()
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	ring, err := keyring.ReadFile(k.keyFile)
	if err != nil {
		return fmt.Errorf("read keys: %w", err)
	}
	if err := accept(); err != nil {
		return err
	}
	k.ring.Adopt(ring)
	return nil
}
