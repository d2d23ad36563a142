package broker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/audit"
)

// The operations of records, besides those that Caller's methods have names for.
const (
	auditMint   = "mint token"
	auditRevoke = "revoke"
	auditReload = "reload"
)

// resultOK is that of a record of a change that was made.
const resultOK = "ok"

// An AuditLog keeps records of changes. It is safe for concurrent use.
type AuditLog interface {
	// Append adds a record, as durably as the log is. It may block on I/O.
	Append(r audit.Record) error
	// Records returns the records that are kept, oldest first, and how many cannot be read.
	// It may block on I/O.
	Records(ctx context.Context) (records []audit.Record, damaged int, err error)
}

// Audit returns what was changed through this daemon and others on its backend, oldest first, as far as it is kept,
// and how many records cannot be read. A tenant's token sees what tokens of that tenant did.
// It needs a token that names the operation, or the operator's own. It may block on I/O.
// Codes: ErrUnavailable.
func (c Caller) Audit(ctx context.Context) (records []audit.Record, damaged int, err error) {
	b := c.broker
	if c.IsOperator() {
		err = b.verifier.Valid(ctx, c.token)
		if err != nil {
			c.refused(ctx, c.request(capability.OpAudit, ""), err)
		}
	} else {
		_, err = c.authorize(ctx, capability.OpAudit, "")
	}
	if err != nil {
		return nil, 0, err
	}
	all, damaged, err := b.audit.Records(ctx)
	if err != nil {
		return nil, 0, &driver.Error{Code: driver.ErrUnavailable, Op: "audit", Detail: "the audit log cannot be read", Err: err}
	}
	if c.tenant == "" {
		return all, damaged, nil
	}
	for _, r := range all {
		if r.Tenant == c.tenant {
			records = append(records, r)
		}
	}
	return records, 0, nil
}

// record puts a change into the audit log, before it is answered. err is that of the
// change: one that changed nothing is not recorded, so that requests which fail cannot
// displace records of changes.
func (c *Caller) record(operation, queue, subject string, count int, err error) {
	result, changed := resultOf(err, count)
	if !changed {
		return
	}
	r := audit.Record{
		Operation: operation, Queue: queue, Tenant: c.tenant, TokenID: c.holder.token.String(), CorrID: c.origin.CorrelationID,
		Subject: subject, Count: count, Result: result,
	}
	if c.origin.Client.IsValid() {
		r.Client = c.origin.Client.String()
	}
	c.broker.append(r)
}

// RecordReload puts a reload of the daemon's settings and keys into the audit log.
func (b *Broker) RecordReload() {
	b.append(audit.Record{Operation: auditReload, Result: resultOK})
}

// append adds a record. What was changed stays so if the log cannot be written: that is
// logged and counted.
func (b *Broker) append(r audit.Record) {
	r.At = time.Now().UTC().Truncate(time.Millisecond)
	if err := b.audit.Append(r); err != nil {
		b.log.Error("audit.not_written", slog.String("operation", r.Operation), slog.String("error", err.Error()))
	}
}

// resultOf names the outcome of a change, and reports whether anything can have changed.
func resultOf(err error, count int) (result string, changed bool) {
	if err == nil {
		return resultOK, true
	}
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return "unknown", true
	}
	switch e.Code {
	case driver.ErrUnavailable, driver.ErrTimeout, driver.ErrClosed:
		return string(e.Code), true
	}
	return string(e.Code), count > 0
}
