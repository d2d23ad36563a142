package faulty

import (
	"context"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var leaseFaults = []Saboteur{
	{Name: "delivers-to-two", Breaks: "VIS-1",
		What: "A receiver that finds nothing gets the messages that the one before it holds.",
		on: hooks{
			receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
				got, err := q.Receive(ctx, req)
				last := state[lastDelivery](q)
				if len(got) > 0 {
					last.set(got[len(got)-1])
					return got, err
				}
				stats, _ := q.Stats(ctx)
				if err == nil && last.get().ID != "" && stats.InFlight > 0 && stats.Ready+stats.Delayed == 0 {
					return []driver.Delivery{last.take()}, nil
				}
				return nil, err
			},
			ack: func(q *queue, ctx context.Context, receipts []driver.Receipt) error {
				for _, receipt := range receipts {
					if last := state[lastDelivery](q); receipt == last.get().Receipt {
						last.take()
					}
				}
				return q.Ack(ctx, receipts)
			},
		}},
	{Name: "hides-too-long", Breaks: "VIS-1",
		What: "A message is ready a tenth of a second after its visibility has ended.",
		on:   shiftVisibility(100 * time.Millisecond)},
	{Name: "comes-back-early", Breaks: "VIS-1",
		What: "A message is ready a millisecond before its visibility has ended.",
		on:   shiftVisibility(-time.Millisecond)},
	{Name: "takes-visibility-zero-for-default", Breaks: "VIS-1",
		What: "Visibility zero becomes half a minute.",
		on:   hooks{receive: alterRequest(func(_ *queue, req *driver.ReceiveRequest) { set(req.Visibility == 0, &req.Visibility, 30*time.Second) })}},
	{Name: "rounds-visibility", Breaks: "VIS-1",
		What: "A visibility is rounded up to whole seconds.",
		on: hooks{receive: alterRequest(func(q *queue, req *driver.ReceiveRequest) {
			set(req.Visibility > 0 && req.Visibility <= q.Traits().MaxVisibility, &req.Visibility, wholeSeconds(req.Visibility))
		})}},
	{Name: "delivers-twice-in-one-batch", Breaks: "VIS-1",
		What: "A receive with visibility zero returns a message twice.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			got, err := q.Receive(ctx, req)
			if rest := req.Max - len(got); req.Visibility == 0 && len(got) > 0 && rest > 0 {
				more, _ := q.Receive(ctx, driver.ReceiveRequest{Max: min(rest, len(got))})
				got = append(got, more...)
			}
			return got, err
		}}},
	{Name: "clamps-visibility", Breaks: "VIS-1",
		What: "A visibility outside its limits is clamped instead of refused.",
		on: hooks{receive: alterRequest(func(q *queue, req *driver.ReceiveRequest) {
			req.Visibility = min(max(req.Visibility, 0), q.Traits().MaxVisibility)
		})}},
	{Name: "leases-a-batch-as-one", Breaks: "VIS-1",
		What: "Extending one message extends all that were delivered with it.",
		on: hooks{
			receive: afterReceive(func(q *queue, _ context.Context, got []driver.Delivery) []driver.Delivery {
				for _, d := range got {
					state[table[driver.Receipt, []driver.Delivery]](q).put(d.Receipt, got)
				}
				return got
			}),
			extend: func(q *queue, ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
				for _, extension := range extensions {
					for _, d := range state[table[driver.Receipt, []driver.Delivery]](q).at(extension.Receipt) {
						if d.Receipt != extension.Receipt && extension.Visibility > 0 {
							_, _ = q.extendOne(ctx, driver.Extension{Receipt: d.Receipt, Visibility: extension.Visibility})
						}
					}
				}
				return q.Extend(ctx, extensions)
			},
		}},

	{Name: "extends-from-the-deadline", Breaks: "VIS-3",
		What: "An extension counts from the old deadline, not from now.",
		on:   extendInstead(func(rest, asked time.Duration) time.Duration { return rest + asked })},
	{Name: "does-not-extend", Breaks: "VIS-3",
		What: "An extension succeeds without an effect.",
		on:   extendInstead(func(rest, _ time.Duration) time.Duration { return rest })},
	{Name: "never-shortens", Breaks: "VIS-3",
		What: "An extension cannot make a lease shorter.",
		on:   extendInstead(func(rest, asked time.Duration) time.Duration { return max(rest, asked) })},
	{Name: "takes-extend-to-zero-for-nothing", Breaks: "VIS-3",
		What: "An extension to zero leaves the lease as it is.",
		on: extendInstead(func(rest, asked time.Duration) time.Duration {
			if asked == 0 {
				return rest
			}
			return asked
		})},
	{Name: "rounds-extensions", Breaks: "VIS-3",
		What: "An extension is rounded up to whole seconds.",
		on:   extendInstead(func(_, asked time.Duration) time.Duration { return wholeSeconds(asked) })},
	{Name: "counts-an-extension-as-a-delivery", Breaks: "VIS-3",
		What: "An extension adds to the delivery count.",
		on: hooks{
			receive: alterDelivered(func(q *queue, d *driver.Delivery) { d.Deliveries += state[counts](q).at(d.ID) }),
			extend: func(q *queue, ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
				granted, err := q.Extend(ctx, extensions)
				for i, extension := range extensions {
					if d, ok := q.delivered.get(extension.Receipt); ok && driver.At(err, i) == nil && extension.Visibility > 0 {
						add(state[counts](q), d.ID, 1)
					}
				}
				return granted, err
			},
		}},
	{Name: "clamps-extensions", Breaks: "VIS-3",
		What: "An extension outside its limits is clamped instead of refused.",
		on: hooks{extend: alterExtensions(func(q *queue, extension *driver.Extension) {
			extension.Visibility = min(max(extension.Visibility, 0), q.Traits().MaxVisibility)
		})}},

	{Name: "ignores-max-hold", Breaks: "VIS-5",
		What: "A message can be held without limit.",
		on:   hooks{config: holdWithoutLimit}},
	{Name: "restarts-max-hold", Breaks: "VIS-5",
		What: "Each extension restarts the time that a message may be held.",
		on: hooks{config: holdWithoutLimit, receive: recordLeases, extend: alterExtensions(func(q *queue, extension *driver.Extension) {
			lease, ok := state[leases](q).get(extension.Receipt)
			if bound := driver.HoldBound(q.config().MaxHold, lease.asked); ok && bound > 0 && extension.Visibility <= q.Traits().MaxVisibility {
				extension.Visibility = min(extension.Visibility, bound)
			}
		})}},
	{Name: "cuts-below-ten-visibilities", Breaks: "VIS-5",
		What: "A small MaxHold cuts extensions below ten times the visibility.",
		on: hooks{config: holdWithoutLimit, receive: recordLeases, extend: alterExtensions(func(q *queue, extension *driver.Extension) {
			lease, ok := state[leases](q).get(extension.Receipt)
			if hold := q.config().MaxHold; ok && hold > 0 && extension.Visibility <= q.Traits().MaxVisibility {
				extension.Visibility = max(min(extension.Visibility, time.Until(lease.since.Add(hold))), 0)
			}
		})}},
	{Name: "hides-cut-extensions", Breaks: "VIS-5",
		What: "An extension that is cut returns the requested duration.",
		on: hooks{extend: func(q *queue, ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
			_, err := q.Extend(ctx, extensions)
			return driver.GrantedAsAsked(extensions, err), err
		}}},
	{Name: "counts-max-hold-over-deliveries", Breaks: "VIS-5",
		What: "The time a message may be held counts over all its deliveries.",
		on: hooks{receive: recordLeases, extend: alterExtensions(func(q *queue, extension *driver.Extension) {
			lease, ok := state[leases](q).get(extension.Receipt)
			if bound := driver.HoldBound(q.config().MaxHold, lease.asked); ok && bound > 0 && extension.Visibility <= q.Traits().MaxVisibility {
				extension.Visibility = max(min(extension.Visibility, time.Until(lease.first.Add(bound))), 0)
			}
		})}},

	{Name: "is-late-by-a-nanosecond", Breaks: "VIS-6",
		What: "At its deadline a lease still holds.",
		on:   shiftVisibility(1)},
	{Name: "lets-a-late-ack-win-too", Breaks: "VIS-6", Also: []string{"VIS-2"},
		What: "An ack up to a second after the deadline succeeds, and the message is delivered again.",
		on: hooks{receive: recordLeases, ack: oneByOne(func(q *queue, ctx context.Context, receipt driver.Receipt) error {
			err := q.ackOne(ctx, receipt)
			lease, ok := state[leases](q).get(receipt)
			late := time.Since(lease.until)
			return unless(ofBatch(err) && ok && late >= 0 && late < time.Second, err)
		})}},
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

// take returns the delivery and forgets it.
func (l *lastDelivery) take() driver.Delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.d
	l.d = driver.Delivery{}
	return d
}

// A lease says how long a message is held.
type lease struct {
	driver.Delivery
	first, since, until time.Time // first is that of the first delivery
	asked               time.Duration
}

// leases are all leases of a queue, past ones included.
type leases = table[driver.Receipt, lease]

// recordLeases remembers leases.
func recordLeases(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Receive(ctx, req)
	all, now := state[leases](q), time.Now()
	for _, d := range got {
		first := now
		if before, ok := all.get(q.latest.at(d.ID)); ok {
			first = before.first
		}
		all.put(d.Receipt, lease{Delivery: d, first: first, since: now, until: now.Add(req.Visibility), asked: req.Visibility})
	}
	return got, err
}

func holdWithoutLimit(config *driver.Config) { config.MaxHold = driver.Off }

// shiftVisibility moves the end of each lease.
func shiftVisibility(by time.Duration) hooks {
	shift := func(q *queue, visibility *time.Duration) {
		limit := q.Traits().MaxVisibility
		if shifted := *visibility + by; *visibility > 0 && *visibility <= limit && shifted > 0 {
			*visibility = min(shifted, limit)
		}
	}
	return hooks{
		receive: alterRequest(func(q *queue, req *driver.ReceiveRequest) { shift(q, &req.Visibility) }),
		extend:  alterExtensions(func(q *queue, extension *driver.Extension) { shift(q, &extension.Visibility) }),
	}
}

// extendInstead grants another extension than requested. instead gets the rest of the lease.
func extendInstead(instead func(rest, asked time.Duration) time.Duration) hooks {
	return hooks{
		receive: recordLeases,
		extend: extendOneByOne(func(q *queue, ctx context.Context, extension driver.Extension) ([]time.Duration, error) {
			lease, ok := state[leases](q).get(extension.Receipt)
			now, limit := time.Now(), q.Traits().MaxVisibility
			if ok && now.Before(lease.until) && extension.Visibility >= 0 && extension.Visibility <= limit {
				extension.Visibility = min(instead(lease.until.Sub(now), extension.Visibility), limit)
			}
			granted, err := q.extendOne(ctx, extension)
			if err == nil {
				lease.until = now.Add(extension.Visibility)
				state[leases](q).put(extension.Receipt, lease)
			}
			return granted, err
		}),
	}
}
