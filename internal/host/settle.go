package host

import (
	"context"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

func (h *handle) Ack(ctx context.Context, receipts []driver.Receipt) error {
	if err := h.check(ctx, "ack"); err != nil {
		return err
	}
	var failures failures
	for i, receipt := range receipts {
		if err := h.ack(receipt); err != nil {
			failures.add(len(receipts), i, err)
		}
	}
	if h.frees() {
		h.refresh()
	}
	return failures.err()
}

func (h *handle) ack(receipt driver.Receipt) error {
	sh, delivery := h.locate(receipt)
	if sh == nil {
		return h.expired("ack", receipt)
	}
	sh.lock()
	err := sh.engine.Ack(h.now(), delivery)
	sh.unlock()
	if err != nil {
		return h.expired("ack", receipt)
	}
	return nil
}

func (h *handle) Nack(ctx context.Context, nacks []driver.Nack) error {
	if err := h.check(ctx, "nack"); err != nil {
		return err
	}
	traits := &h.settings.Load().traits
	var failures failures
	for i, nack := range nacks {
		err := driver.CheckVisibility("nack", "Delay", nack.Delay, traits)
		if err == nil {
			err = h.nack(nack)
		}
		if err != nil {
			failures.add(len(nacks), i, h.named(err, "nack"))
		}
	}
	h.refresh()
	return failures.err()
}

func (h *handle) nack(nack driver.Nack) error {
	sh, delivery := h.locate(nack.Receipt)
	if sh == nil {
		return h.expired("nack", nack.Receipt)
	}
	sh.lock()
	defer sh.unlock()
	if err := sh.engine.Nack(h.now(), delivery, nack.Delay, driver.TrimCause(nack.Cause)); err != nil {
		return h.expired("nack", nack.Receipt)
	}
	return nil
}

func (h *handle) Extend(ctx context.Context, extensions []driver.Extension) error {
	if err := h.check(ctx, "extend"); err != nil {
		return err
	}
	traits := &h.settings.Load().traits
	var failures failures
	for i, extension := range extensions {
		err := driver.CheckVisibility("extend", "Visibility", extension.Visibility, traits)
		if err == nil {
			err = h.extend(extension)
		}
		if err != nil {
			failures.add(len(extensions), i, h.named(err, "extend"))
		}
	}
	h.refresh()
	return failures.err()
}

func (h *handle) extend(extension driver.Extension) error {
	sh, delivery := h.locate(extension.Receipt)
	if sh == nil {
		return h.expired("extend", extension.Receipt)
	}
	sh.lock()
	defer sh.unlock()
	if err := sh.engine.Extend(h.now(), delivery, extension.Visibility); err != nil {
		return h.expired("extend", extension.Receipt)
	}
	return nil
}

// locate finds the shard a receipt points to; nil if there is none.
func (q *queue) locate(receipt driver.Receipt) (*shard, engine.Delivery) {
	number := receipt.Place >> placeBits
	if number >= uint64(len(q.shards)) {
		return nil, engine.Delivery{}
	}
	return q.shards[number], engine.Delivery{
		Seq:   receipt.Place & (1<<placeBits - 1),
		Nonce: receipt.Nonce,
		ID:    receipt.Handle,
	}
}

// frees reports whether settling a message can make others deliverable.
func (q *queue) frees() bool {
	config := &q.settings.Load().config
	return config.StrictGroups || config.MaxInFlight > 0
}

func (q *queue) expired(op string, receipt driver.Receipt) error {
	return &driver.Error{Code: driver.ErrReceiptExpired, Op: op, Queue: q.name, MessageID: receipt.Handle}
}

func idText(id ulid.ULID) string { return id.String() }

// failures collects the errors of a batch, at their positions. Nothing is
// allocated while there are none.
type failures []error

func (f *failures) add(length, i int, err error) {
	if *f == nil {
		*f = make([]error, length)
	}
	(*f)[i] = err
}

func (f failures) err() error {
	if f == nil {
		return nil
	}
	return driver.NewBatchError(f)
}
