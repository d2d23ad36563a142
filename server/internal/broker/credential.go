package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/revocation"
)

// A Revoker keeps revocations. Those of package capability implement it.
type Revoker interface {
	Revoke(ctx context.Context, r revocation.Revocation) error
}

// Mint makes a token. It needs a token for admin on any queue. The new token cannot
// allow more than the caller's, outlive it, or survive its revocation; a tenant's token
// mints only for its tenant. It does not block. Codes: ErrInvalid, ErrTooLarge.
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
	// The new token inherits the caveats of the caller's token: a token cannot mint a
	// wider one, or one that survives its own revocation.
	inherited := c.token.Inspect().Caveats
	if c.tenant != "" {
		// Revoking the tenant revokes the new token too, even if this daemon has not
		// heard of the revocation yet.
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

// RevokeToken revokes a token, all tokens narrowed from it and all that it minted. They
// can only ack deliveries that they took before. It needs a
// token for admin on any queue. A tenant's token can revoke tokens of its tenant, and
// must present them, because an id does not prove the tenant. The revocation is
// forgotten when all tokens that it concerns have expired, and counts against the
// tenant's share of revocations. It blocks until the revocation is
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
			return &driver.Error{Code: driver.ErrInvalid, Op: "revoke", Field: "token", Detail: "unknown signing key, or token already expired"}
		}
		return err
	}
	described := token.Inspect()
	if c.tenant != "" && described.Tenant != c.tenant {
		return otherTenant("revoke")
	}
	r := revocation.Revocation{Token: described.ID, Until: described.Ends, Share: revocation.ShareOf(c.tenant)}
	if alone {
		r.Token, r.Until = token.NarrowedID(), described.ExpiresAt
	}
	return c.revoke(ctx, r)
}

// Revoke adds a revocation: of a token by its minted or narrowed id, with everything narrowed from it
// and everything that it has minted, or of all tokens of a tenant that were minted
// so far. It needs a token for admin on any queue; a tenant's token can revoke its own
// tenant, and single tokens only with RevokeToken. It blocks until the
// revocation is durable. Codes: ErrInvalid, ErrFull, ErrUnavailable,
// ErrUnsupported (this daemon keeps no revocations).
func (c Caller) Revoke(ctx context.Context, r revocation.Revocation) error {
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

// revoke is Revoke without authorisation.
func (c *Caller) revoke(ctx context.Context, r revocation.Revocation) error {
	if c.broker.revocations == nil {
		return &driver.Error{Code: driver.ErrUnsupported, Op: "revoke", Detail: "this daemon keeps no revocations"}
	}
	if r.At.IsZero() {
		r.At = time.Now()
	}
	if !r.Until.IsZero() && r.Until.Before(r.At) {
		r.Until = r.At // it has expired already
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
