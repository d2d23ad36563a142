package broker

import (
	"context"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// A KeyKeeper changes the keys that tokens are made with, and makes the change
// durable before it returns.
type KeyKeeper interface {
	// RotateKeys adds a key, which mints tokens from now on. Codes: ErrFull (too many
	// keys), ErrUnavailable.
	RotateKeys(ctx context.Context) error
	// RetireKey ends the tokens of a key that does not mint any more. Codes:
	// ErrNotFound, ErrConflict (it mints), ErrUnavailable.
	RetireKey(ctx context.Context, id capability.KeyID, at time.Time) error
}

// A KeyState describes a key. Nothing in it is secret.
type KeyState struct {
	ID capability.KeyID
	// Current: the key mints tokens.
	Current bool
	// RetiredAt is the time from which its tokens are refused; zero if they are not.
	RetiredAt time.Time
}

// Keys lists the keys that tokens are made with, the current one first. It needs a
// token of no tenant for administration of any queue, as all changes of keys do.
func (c Caller) Keys(ctx context.Context) ([]KeyState, error) {
	if err := c.mayListKeys(ctx, "list keys"); err != nil {
		return nil, err
	}
	return c.keys(), nil
}

func (c *Caller) keys() []KeyState {
	var states []KeyState
	for i, key := range c.broker.ring.Keys() {
		states = append(states, KeyState{key.ID(), i == 0, key.RetiredAt()})
	}
	return states
}

// RotateKeys adds a key, which mints tokens from now on; tokens of other keys stay valid.
// Other daemons with the same key file use it when they have read it again. It blocks
// until the key is durable. Codes: ErrFull (too many keys), ErrUnavailable,
// ErrUnsupported (the keys of this daemon cannot be changed).
func (c Caller) RotateKeys(ctx context.Context) ([]KeyState, error) {
	if err := c.mayChangeKeys(ctx, "rotate keys"); err != nil {
		return nil, err
	}
	if err := c.broker.keeper.RotateKeys(ctx); err != nil {
		return nil, err
	}
	c.record("rotate keys", "", c.broker.ring.Current().ID().String(), 0, nil)
	c.broker.log.LogAttrs(ctx, slog.LevelInfo, "auth.rotated", c.attrs("", slog.String("key", c.broker.ring.Current().ID().String()))...)
	return c.keys(), nil
}

// RetireKey refuses the tokens of a key from now on; they can only ack deliveries that
// they took before. It does not retire the key of the caller's own token, which would
// lock the caller out. It blocks until the change is durable. Codes: ErrNotFound,
// ErrConflict (the current key, or the caller's own), ErrUnavailable, ErrUnsupported.
func (c Caller) RetireKey(ctx context.Context, id capability.KeyID) ([]KeyState, error) {
	if err := c.mayChangeKeys(ctx, "retire a key"); err != nil {
		return nil, err
	}
	if c.token.Inspect().Key == id {
		return nil, &driver.Error{
			Code: driver.ErrConflict, Op: "retire a key", Field: "key_id",
			Detail: "is the key of the caller's token; use a token of another key",
		}
	}
	if err := c.broker.keeper.RetireKey(ctx, id, time.Now()); err != nil {
		return nil, err
	}
	c.record("retire key", "", id.String(), 0, nil)
	c.broker.log.LogAttrs(ctx, slog.LevelInfo, "auth.retired", c.attrs("", slog.String("key", id.String()))...)
	return c.keys(), nil
}

func (c *Caller) mayListKeys(ctx context.Context, op string) error {
	if _, err := c.authorize(ctx, capability.OpAdmin, ""); err != nil {
		return err
	}
	if c.tenant != "" {
		return &driver.Error{Code: driver.ErrForbidden, Op: op, Field: "tenant", Detail: "keys belong to all tenants; want a token without a tenant", Err: capability.ReasonTenant}
	}
	return nil
}

func (c *Caller) mayChangeKeys(ctx context.Context, op string) error {
	err := c.mayListKeys(ctx, op)
	if err == nil && c.broker.keeper == nil {
		err = &driver.Error{Code: driver.ErrUnsupported, Op: op, Detail: "the keys of this daemon cannot be changed"}
	}
	return err
}
