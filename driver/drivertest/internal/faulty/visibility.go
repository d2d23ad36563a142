package faulty

import (
	"context"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var leaseFaults = []Saboteur{
	{
		Name: "delivers-to-two", Breaks: "VIS-1",
		What: "A receiver that finds nothing gets the messages that the one before it holds.",
		Wrap: perQueue(func(q passThrough, last *lastDelivery) driver.Queue { return deliversToTwo{q, last} }),
	},
	{
		Name: "hides-too-long", Breaks: "VIS-1",
		What: "A message is ready a tenth of a second after its visibility has ended.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return shiftsVisibility{q, 100 * time.Millisecond} }),
	},
	{
		Name: "comes-back-early", Breaks: "VIS-1",
		What: "A message is ready a millisecond before its visibility has ended.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return shiftsVisibility{q, -time.Millisecond} }),
	},
	{
		Name: "takes-visibility-zero-for-default", Breaks: "VIS-1",
		What: "Visibility zero becomes half a minute.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesRequest{q, func(req *driver.ReceiveRequest) {
				if req.Visibility == 0 {
					req.Visibility = 30 * time.Second
				}
			}}
		}),
	},
	{
		Name: "rounds-visibility", Breaks: "VIS-1",
		What: "A visibility is rounded up to whole seconds.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesRequest{q, func(req *driver.ReceiveRequest) {
				if req.Visibility > 0 && req.Visibility <= q.Traits().MaxVisibility {
					req.Visibility = wholeSeconds(req.Visibility)
				}
			}}
		}),
	},
	{
		Name: "delivers-twice-in-one-batch", Breaks: "VIS-1",
		What: "A receive with visibility zero returns a message twice.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return doublesGlances{q} }),
	},
	{
		Name: "clamps-visibility", Breaks: "VIS-1",
		What: "A visibility outside its limits is clamped instead of refused.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesRequest{q, func(req *driver.ReceiveRequest) {
				req.Visibility = min(max(req.Visibility, 0), q.Traits().MaxVisibility)
			}}
		}),
	},
	{
		Name: "leases-a-batch-as-one", Breaks: "VIS-1",
		What: "Extending one message extends all that were delivered with it.",
		Wrap: perQueue(func(q passThrough, batches *table[driver.Receipt, []driver.Delivery]) driver.Queue {
			return leasesAsOne{q, batches}
		}),
	},

	{
		Name: "extends-from-the-deadline", Breaks: "VIS-3",
		What: "An extension counts from the old deadline, not from now.",
		Wrap: perQueue(func(q passThrough, leases *deadlines) driver.Queue {
			return misextends{q, leases, func(rest, asked time.Duration) time.Duration { return rest + asked }}
		}),
	},
	{
		Name: "does-not-extend", Breaks: "VIS-3",
		What: "An extension succeeds without an effect.",
		Wrap: perQueue(func(q passThrough, leases *deadlines) driver.Queue {
			return misextends{q, leases, func(rest, _ time.Duration) time.Duration { return rest }}
		}),
	},
	{
		Name: "never-shortens", Breaks: "VIS-3",
		What: "An extension cannot make a lease shorter.",
		Wrap: perQueue(func(q passThrough, leases *deadlines) driver.Queue {
			return misextends{q, leases, func(rest, asked time.Duration) time.Duration { return max(rest, asked) }}
		}),
	},
	{
		Name: "takes-extend-to-zero-for-nothing", Breaks: "VIS-3",
		What: "An extension to zero leaves the lease as it is.",
		Wrap: perQueue(func(q passThrough, leases *deadlines) driver.Queue {
			return misextends{q, leases, func(rest, asked time.Duration) time.Duration {
				if asked == 0 {
					return rest
				}
				return asked
			}}
		}),
	},
	{
		Name: "rounds-extensions", Breaks: "VIS-3",
		What: "An extension is rounded up to whole seconds.",
		Wrap: perQueue(func(q passThrough, leases *deadlines) driver.Queue {
			return misextends{q, leases, func(_, asked time.Duration) time.Duration { return wholeSeconds(asked) }}
		}),
	},
	{
		Name: "counts-an-extension-as-a-delivery", Breaks: "VIS-3",
		What: "An extension adds to the delivery count.",
		Wrap: perQueue(func(q passThrough, books *nackCounts) driver.Queue { return countsExtensions{q, books} }),
	},
	{
		Name: "clamps-extensions", Breaks: "VIS-3",
		What: "An extension outside its limits is clamped instead of refused.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return clampsExtensions{q} }),
	},

	{
		Name: "ignores-max-hold", Breaks: "VIS-5",
		What: "A message can be held without limit.",
		Wrap: changesConfig(func(config *driver.Config) { config.MaxHold = driver.Off }),
	},
	{
		Name: "restarts-max-hold", Breaks: "VIS-5",
		What: "Each extension restarts the time that a message may be held.",
		Wrap: changesConfigAndHides(func(config *driver.Config) { config.MaxHold = driver.Off }, func(q passThrough) driver.Queue {
			return restartsHold{q, stateOf[table[driver.Receipt, time.Duration]](q.wrapper, q.name)}
		}),
	},
	{
		Name: "cuts-below-ten-visibilities", Breaks: "VIS-5",
		What: "A small MaxHold cuts extensions below ten times the visibility.",
		Wrap: changesConfigAndHides(func(config *driver.Config) { config.MaxHold = driver.Off }, func(q passThrough) driver.Queue {
			return holdsWithoutFloor{q, stateOf[table[driver.Receipt, time.Time]](q.wrapper, q.name)}
		}),
	},
	{
		Name: "hides-cut-extensions", Breaks: "VIS-5",
		What: "An extension that is cut returns the requested duration.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return hidesCuts{q} }),
	},
	{
		Name: "counts-max-hold-over-deliveries", Breaks: "VIS-5",
		What: "The time a message may be held counts over all its deliveries.",
		Wrap: perQueue(func(q passThrough, firsts *heldSince) driver.Queue { return holdsOverall{q, firsts} }),
	},

	{
		Name: "is-late-by-a-nanosecond", Breaks: "VIS-6",
		What: "At its deadline a lease still holds.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return shiftsVisibility{q, 1} }),
	},
	{
		Name: "lets-a-late-ack-win-too", Breaks: "VIS-6", Also: []string{"VIS-2"},
		What: "An ack up to a second after the deadline succeeds, and the message is delivered again.",
		Wrap: perQueue(func(q passThrough, leases *deadlines) driver.Queue { return letsBothWin{q, leases} }),
	},
}

// lastDelivery is the latest delivery.
type lastDelivery struct {
	mu sync.Mutex // guards d
	d  driver.Delivery
}

func (l *lastDelivery) get() driver.Delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.d
}

func (l *lastDelivery) set(d driver.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.d = d
}

type deliversToTwo struct {
	passThrough
	last *lastDelivery
}

func (q deliversToTwo) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if len(got) > 0 {
		q.last.set(got[len(got)-1])
		return got, err
	}
	stats, _ := q.Queue.Stats(ctx)
	if last := q.last.get(); err == nil && last.ID != "" && stats.InFlight > 0 && stats.Ready+stats.Delayed == 0 {
		q.last.set(driver.Delivery{})
		return []driver.Delivery{last}, nil
	}
	return nil, err
}

func (q deliversToTwo) Ack(ctx context.Context, acked []driver.Receipt) error {
	for _, receipt := range acked {
		if receipt == q.last.get().Receipt {
			q.last.set(driver.Delivery{})
		}
	}
	return q.Queue.Ack(ctx, acked)
}

// shiftsVisibility moves the end of each lease.
type shiftsVisibility struct {
	passThrough
	by time.Duration
}

func (q shiftsVisibility) shift(visibility time.Duration) time.Duration {
	if shifted := visibility + q.by; visibility > 0 && visibility <= q.Traits().MaxVisibility && shifted > 0 {
		return min(shifted, q.Traits().MaxVisibility)
	}
	return visibility
}

func (q shiftsVisibility) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	req.Visibility = q.shift(req.Visibility)
	return q.Queue.Receive(ctx, req)
}

func (q shiftsVisibility) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	shifted := append([]driver.Extension(nil), extensions...)
	for i := range shifted {
		shifted[i].Visibility = q.shift(shifted[i].Visibility)
	}
	return q.Queue.Extend(ctx, shifted)
}

type leasesAsOne struct {
	passThrough
	batches *table[driver.Receipt, []driver.Delivery]
}

func (q leasesAsOne) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for _, d := range got {
		q.batches.put(d.Receipt, got)
	}
	return got, err
}

func (q leasesAsOne) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	for _, extension := range extensions {
		batch, _ := q.batches.get(extension.Receipt)
		for _, d := range batch {
			if d.Receipt != extension.Receipt && extension.Visibility > 0 {
				_, _ = q.Queue.Extend(ctx, []driver.Extension{{Receipt: d.Receipt, Visibility: extension.Visibility}})
			}
		}
	}
	return q.Queue.Extend(ctx, extensions)
}

// deadlines are the ends of all leases, past ones included.
type deadlines struct {
	table[driver.Receipt, time.Time]
}

func (l *deadlines) lease(got []driver.Delivery, visibility time.Duration) {
	for _, d := range got {
		l.put(d.Receipt, time.Now().Add(visibility))
	}
}

// misextends grants another extension than requested.
type misextends struct {
	passThrough
	*deadlines
	instead func(rest, asked time.Duration) time.Duration
}

func (q misextends) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	q.lease(got, req.Visibility)
	return got, err
}

func (q misextends) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	return eachExtension(extensions, func(extension driver.Extension) ([]time.Duration, error) {
		deadline, ok := q.get(extension.Receipt)
		now, limit := time.Now(), q.Traits().MaxVisibility
		if ok && now.Before(deadline) && extension.Visibility >= 0 && extension.Visibility <= limit {
			extension.Visibility = min(q.instead(deadline.Sub(now), extension.Visibility), limit)
		}
		granted, err := q.Queue.Extend(ctx, []driver.Extension{extension})
		if err == nil {
			q.put(extension.Receipt, now.Add(extension.Visibility))
		}
		return granted, err
	})
}

type doublesGlances struct{ passThrough }

func (q doublesGlances) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if rest := req.Max - len(got); req.Visibility == 0 && len(got) > 0 && rest > 0 {
		more, _ := q.Queue.Receive(ctx, driver.ReceiveRequest{Max: min(rest, len(got))})
		got = append(got, more...)
	}
	return got, err
}

type countsExtensions struct {
	passThrough
	*nackCounts
}

func (q countsExtensions) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		q.delivered.put(got[i].Receipt, got[i])
		extra, _ := q.before.get(got[i].ID)
		got[i].Deliveries += extra
	}
	return got, err
}

func (q countsExtensions) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	granted, err := q.Queue.Extend(ctx, extensions)
	for i, extension := range extensions {
		if d, ok := q.delivered.get(extension.Receipt); ok && driver.At(err, i) == nil && extension.Visibility > 0 {
			add(&q.before, d.ID, 1)
		}
	}
	return granted, err
}

type clampsExtensions struct{ passThrough }

func (q clampsExtensions) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	clamped := append([]driver.Extension(nil), extensions...)
	for i := range clamped {
		clamped[i].Visibility = min(max(clamped[i].Visibility, 0), q.Traits().MaxVisibility)
	}
	return q.Queue.Extend(ctx, clamped)
}

type restartsHold struct {
	passThrough
	asked *table[driver.Receipt, time.Duration]
}

func (q restartsHold) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for _, d := range got {
		q.asked.put(d.Receipt, req.Visibility)
	}
	return got, err
}

func (q restartsHold) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	capped := append([]driver.Extension(nil), extensions...)
	for i := range capped {
		asked, ok := q.asked.get(capped[i].Receipt)
		if bound := driver.HoldBound(q.config().MaxHold, asked); ok && bound > 0 && capped[i].Visibility <= q.Traits().MaxVisibility {
			capped[i].Visibility = min(capped[i].Visibility, bound)
		}
	}
	return q.Queue.Extend(ctx, capped)
}

type hidesCuts struct{ passThrough }

func (q hidesCuts) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	_, err := q.Queue.Extend(ctx, extensions)
	return driver.GrantedAsAsked(extensions, err), err
}

type holdsWithoutFloor struct {
	passThrough
	delivered *table[driver.Receipt, time.Time]
}

func (q holdsWithoutFloor) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for _, d := range got {
		q.delivered.put(d.Receipt, time.Now())
	}
	return got, err
}

func (q holdsWithoutFloor) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	capped := append([]driver.Extension(nil), extensions...)
	for i := range capped {
		at, ok := q.delivered.get(capped[i].Receipt)
		if hold := q.config().MaxHold; ok && hold > 0 && capped[i].Visibility <= q.Traits().MaxVisibility {
			capped[i].Visibility = max(min(capped[i].Visibility, time.Until(at.Add(hold))), 0)
		}
	}
	return q.Queue.Extend(ctx, capped)
}

// heldSince are the times of the first deliveries.
type heldSince struct {
	first  table[string, time.Time]
	leases table[driver.Receipt, driver.Delivery]
	asked  table[driver.Receipt, time.Duration]
}

type holdsOverall struct {
	passThrough
	*heldSince
}

func (q holdsOverall) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for _, d := range got {
		if _, ok := q.first.get(d.ID); !ok {
			q.first.put(d.ID, time.Now())
		}
		q.leases.put(d.Receipt, d)
		q.asked.put(d.Receipt, req.Visibility)
	}
	return got, err
}

func (q holdsOverall) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	capped := append([]driver.Extension(nil), extensions...)
	for i := range capped {
		d, ok := q.leases.get(capped[i].Receipt)
		asked, _ := q.asked.get(d.Receipt)
		if bound := driver.HoldBound(q.config().MaxHold, asked); ok && bound > 0 && capped[i].Visibility <= q.Traits().MaxVisibility {
			first, _ := q.first.get(d.ID)
			capped[i].Visibility = max(min(capped[i].Visibility, time.Until(first.Add(bound))), 0)
		}
	}
	return q.Queue.Extend(ctx, capped)
}

type letsBothWin struct {
	passThrough
	*deadlines
}

func (q letsBothWin) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	q.lease(got, req.Visibility)
	return got, err
}

func (q letsBothWin) Ack(ctx context.Context, acked []driver.Receipt) error {
	return each(acked, func(receipt driver.Receipt) error {
		err := q.Queue.Ack(ctx, []driver.Receipt{receipt})
		deadline, ok := q.get(receipt)
		if late := time.Since(deadline); ofBatch(err) && ok && late >= 0 && late < time.Second {
			return nil
		}
		return err
	})
}
