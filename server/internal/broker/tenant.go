package broker

import (
	"context"
	"iter"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// InTenant returns the same caller, which reads the queues of a tenant. It is for
// operators: it needs a token of no tenant for admin on any queue, besides what each
// operation needs. Surfaces use it only to read. Codes: ErrInvalid (the tenant's name).
func (c Caller) InTenant(ctx context.Context, tenant string) (Caller, error) {
	if err := c.mayLookIntoTenants(ctx); err != nil {
		return c, err
	}
	if err := capability.Tenant(tenant).Check(); err != nil {
		return c, err
	}
	c.tenant = tenant
	return c.Existing(), nil
}

func (c *Caller) mayLookIntoTenants(ctx context.Context) error {
	if c.tenant != "" {
		return otherTenant("look into a tenant")
	}
	_, err := c.authorize(ctx, capability.OpAdmin, "")
	return err
}

// A TenantQueue names a queue and its tenant; Tenant is empty for queues of no tenant.
type TenantQueue struct{ Tenant, Queue string }

// AllQueues lists the queues of all tenants, in the order of the backend. It is authorised
// like InTenant; an error ends the sequence. Codes: ErrUnsupported, ErrUnavailable.
func (c Caller) AllQueues(ctx context.Context) iter.Seq2[TenantQueue, error] {
	return func(yield func(TenantQueue, error) bool) {
		err := c.mayLookIntoTenants(ctx)
		if err == nil {
			err = c.broker.admit("list", "", lastForReads)
		}
		if err == nil && c.broker.admin == nil {
			err = &driver.Error{Code: driver.ErrUnsupported, Op: "list", Detail: "backend does not support managing queues"}
		}
		if err != nil {
			yield(TenantQueue{}, err)
			return
		}
		for name, err := range c.broker.admin.Queues(ctx) {
			if err != nil {
				yield(TenantQueue{}, err)
				return
			}
			key, ok := keyOf(name)
			if ok && !yield(TenantQueue{key.tenant, key.name}, nil) {
				return
			}
		}
	}
}
