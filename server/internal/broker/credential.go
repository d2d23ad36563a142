package broker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// A Revoker keeps revocations. Those of package capability are.
type Revoker interface {
	Revoke(ctx context.Context, r capability.Revocation) error
}

// Mint makes a token. It needs one for administration of any topic, and makes no
// token that outlives it or, if it is a tenant's, is for another tenant. It does
// not block. Codes: ErrInvalid, ErrTooLarge.
func (c Caller) Mint(ctx context.Context, tenant string, caveats []capability.Caveat) (capability.Token, error) {
	if _, err := c.authorize(ctx, capability.OpAdmin, ""); err != nil {
		return capability.Token{}, err
	}
	if tenant == "" {
		tenant = c.tenant
	}
	if c.tenant != "" && tenant != c.tenant {
		return capability.Token{}, &driver.Error{
			Code: driver.ErrForbidden, Op: "mint", Field: "tenant", Detail: "the token is for another tenant", Err: capability.ReasonTenant,
		}
	}
	// What holds for the token that mints holds for what it mints: nobody widens.
	caveats = append(c.token.Inspect().Caveats, caveats...)
	token, err := c.broker.ring.Mint(tenant, caveats...)
	if err == nil {
		c.broker.log.LogAttrs(ctx, slog.LevelInfo, "auth.minted", c.attrs("", slog.String("minted", token.ID().String()))...)
	}
	return token, err
}

// Revoke makes a token, with everything narrowed from it, good for nothing but
// the acks of what it has taken. It needs a token for administration of any
// topic; a tenant's can revoke all tokens of its tenant, by a revocation of that
// tenant, and single tokens by their ids. It blocks until the revocation is
// durable. Codes: ErrInvalid, ErrFull, ErrUnavailable, ErrUnsupported (this daemon
// keeps no revocations).
func (c Caller) Revoke(ctx context.Context, r capability.Revocation) error {
	if _, err := c.authorize(ctx, capability.OpAdmin, ""); err != nil {
		return err
	}
	if c.tenant != "" && r.Tenant != "" && r.Tenant != c.tenant {
		return &driver.Error{Code: driver.ErrForbidden, Op: "revoke", Field: "tenant", Detail: "the token is for another tenant", Err: capability.ReasonTenant}
	}
	if c.broker.revocations == nil {
		return &driver.Error{Code: driver.ErrUnsupported, Op: "revoke", Detail: "this daemon keeps no revocations"}
	}
	if r.At.IsZero() {
		r.At = time.Now()
	}
	err := c.broker.revocations.Revoke(ctx, r)
	if err == nil || errors.Is(err, driver.ErrUnavailable) {
		c.broker.log.LogAttrs(ctx, slog.LevelInfo, "auth.revoked", c.attrs("",
			slog.String("revoked", r.Token.String()), slog.String("revoked_tenant", r.Tenant))...)
	}
	return err
}
