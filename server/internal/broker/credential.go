package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// A Revoker keeps revocations. Those of package capability are.
type Revoker interface {
	Revoke(ctx context.Context, r capability.Revocation) error
}

// Mint makes a token. It needs one for administration of any queue, and makes no
// token that may do more, outlives it, is good when it is revoked, or, if it is a
// tenant's, is for another tenant. It does not block. Codes: ErrInvalid, ErrTooLarge.
func (c Caller) Mint(ctx context.Context, tenant string, caveats []capability.Caveat) (capability.Token, error) {
	if _, err := c.authorize(ctx, capability.OpAdmin, ""); err != nil {
		return capability.Token{}, err
	}
	if tenant == "" {
		tenant = c.tenant
	}
	if c.tenant != "" && tenant != c.tenant {
		return capability.Token{}, otherTenant("mint")
	}
	// What holds for the token that mints holds for what it mints: nobody widens,
	// and nobody escapes a revocation.
	inherited := c.token.Inspect().Caveats
	if c.tenant != "" {
		// It falls with the tenant's tokens, even if it is minted where that they fell
		// is not known yet.
		inherited = append(inherited, capability.Tenant(c.tenant))
	}
	caveats = append(append(inherited, capability.MintedBy(c.token.ID())), caveats...)
	token, err := c.broker.ring.Mint(tenant, caveats...)
	if at := token.Inspect().ExpiresAt; err == nil && !at.After(time.Now()) {
		return capability.Token{}, &driver.Error{
			Code: driver.ErrInvalid, Op: "mint", Field: "caveats",
			Detail: fmt.Sprintf("the token would have expired at %s; want a time in the future", at.UTC().Format(time.RFC3339)),
		}
	}
	if err == nil {
		c.record(auditMint, "", token.ID().String(), 0, nil)
		c.broker.log.LogAttrs(ctx, slog.LevelInfo, "auth.minted", c.attrs("", slog.String("minted", token.ID().String()))...)
	}
	return token, err
}

// RevokeToken makes a token, with everything narrowed from it and everything that
// it has minted, good for nothing but the acks of what they have taken. It needs a
// token for administration of any queue; a tenant's can revoke tokens of its own
// tenant, which is why it has to show them: an id alone does not prove whose it
// is. The entry is forgotten when all that it concerns has expired, and counts
// against the tenant's share of revocations. It blocks until the revocation is
// durable. Codes: ErrInvalid (no token of this daemon's keys), ErrFull,
// ErrUnavailable, ErrUnsupported (this daemon keeps no revocations).
func (c Caller) RevokeToken(ctx context.Context, token capability.Token) error {
	return c.revokeShown(ctx, token, false)
}

// RevokeNarrowed is RevokeToken that leaves the token that this one was narrowed from,
// and the others narrowed from that, as they are.
func (c Caller) RevokeNarrowed(ctx context.Context, token capability.Token) error {
	return c.revokeShown(ctx, token, true)
}

// revokeShown revokes a token that was shown, alone or with all of its family.
func (c *Caller) revokeShown(ctx context.Context, token capability.Token, alone bool) error {
	if _, err := c.authorize(ctx, capability.OpAdmin, ""); err != nil {
		return err
	}
	if err := c.broker.verifier.Genuine(ctx, token); err != nil {
		if errors.Is(err, driver.ErrUnauthenticated) || errors.Is(err, driver.ErrForbidden) {
			return &driver.Error{Code: driver.ErrInvalid, Op: "revoke", Field: "token", Detail: "was not made with the keys of this daemon, or is good for nothing anyway"}
		}
		return err
	}
	described := token.Inspect()
	if c.tenant != "" && described.Tenant != c.tenant {
		return otherTenant("revoke")
	}
	r := capability.Revocation{Token: described.ID, Until: described.Ends, Share: capability.ShareOf(c.tenant)}
	if alone {
		r.Token, r.Until = token.NarrowedID(), described.ExpiresAt
	}
	return c.revoke(ctx, r)
}

// Revoke adds a revocation: of a token by its minted or narrowed id, with everything narrowed from it
// and everything that it has minted, or of all tokens of a tenant that were minted
// so far. It needs a token for administration of any queue; a tenant's can revoke
// its own tenant, and single tokens only with RevokeToken. It blocks until the
// revocation is durable. Codes: ErrInvalid, ErrFull, ErrUnavailable,
// ErrUnsupported (this daemon keeps no revocations).
func (c Caller) Revoke(ctx context.Context, r capability.Revocation) error {
	if _, err := c.authorize(ctx, capability.OpAdmin, ""); err != nil {
		return err
	}
	switch {
	case c.tenant == "":
	case r.Tenant != "" && r.Tenant != c.tenant:
		return otherTenant("revoke")
	case !r.Token.IsZero():
		return &driver.Error{
			Code: driver.ErrForbidden, Op: "revoke", Field: "token_id", Err: capability.ReasonTenant,
			Detail: "an id does not prove that the token is of this tenant; show the token itself",
		}
	}
	return c.revoke(ctx, r)
}

func otherTenant(op string) error {
	return &driver.Error{Code: driver.ErrForbidden, Op: op, Field: "tenant", Detail: "the token is for another tenant", Err: capability.ReasonTenant}
}

// revoke is Revoke for who is authorised.
func (c *Caller) revoke(ctx context.Context, r capability.Revocation) error {
	if c.broker.revocations == nil {
		return &driver.Error{Code: driver.ErrUnsupported, Op: "revoke", Detail: "this daemon keeps no revocations"}
	}
	if r.At.IsZero() {
		r.At = time.Now()
	}
	if !r.Until.IsZero() && r.Until.Before(r.At) {
		r.Until = r.At // it has expired by itself
	}
	err := c.broker.revocations.Revoke(ctx, r)
	subject := "tenant " + r.Tenant
	if r.Tenant == "" {
		subject = r.Token.String()
	}
	c.record(auditRevoke, "", subject, 0, err)
	if err == nil || errors.Is(err, driver.ErrUnavailable) {
		c.broker.log.LogAttrs(ctx, slog.LevelInfo, "auth.revoked", c.attrs("",
			slog.String("revoked", r.Token.String()), slog.String("revoked_tenant", r.Tenant))...)
	}
	return err
}
