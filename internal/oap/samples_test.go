package oap_test

import (
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// A sample is a payload, and a way to read it and write it again.
type sample struct {
	name    string
	payload []byte
	again   func(payload []byte) ([]byte, error)
}

var (
	aTime   = time.Date(2026, 3, 4, 5, 6, 7, 890, time.UTC)
	aTarget = oap.Target{Ticket: oap.Ticket{Sequence: 300, Behind: 2}, Handle: 7}
	aConfig = driver.Config{
		Shards: 4, StrictGroups: true, MaxDeliveries: 5, MaxMessages: 1000, MaxBytes: 1 << 30, MaxInFlight: 10, MaxDead: 9,
		DedupWindow: time.Minute, DedupMax: 100, RetainReady: driver.Retention{Age: time.Hour, Count: 1},
		RetainDead: driver.Retention{Age: 2 * time.Hour, Count: 2}, MaxHold: 10, DeadLetterTo: "graveyard",
		DropExpired: true, Annotation: "tags",
	}
	aFairConfig = driver.Config{FairGroups: true}
	aMessage    = driver.Message{
		ID: "01JABCDEFGHJKMNPQRSTVWXYZ0", Body: []byte("hello"), Attributes: map[string]string{"b": "2", "a": "1"},
		Group: "g", ReplyTo: "reply:1", CorrelationID: "c", Deliveries: 3, EnqueuedAt: aTime,
		FirstReceivedAt: aTime.Add(time.Second), LastError: "boom",
	}
	aLetter = driver.DeadLetter{
		Message: aMessage, Source: "orders", Reason: driver.ReasonFatal, ErrorType: "*fs.PathError",
		DeadAt: aTime.Add(time.Minute), Redrives: 2,
	}
	anError = driver.Error{
		Code: driver.ErrFull, Op: "send", Queue: "orders", MessageID: "m", Field: "f", Detail: "d", RetryAfter: time.Second,
	}
	someOut = []driver.Outgoing{
		{Body: []byte("plain")},
		{
			Body: []byte("all"), Attributes: map[string]string{"k": "v", "": "empty"}, Delay: -time.Second,
			DedupKey: "key", Group: "group", ReplyTo: "reply", CorrelationID: "corr",
		},
	}
	someDue    = []driver.Outgoing{{Body: []byte("due"), Group: "group", DeliverAt: aTime}, {DeliverAt: time.Unix(0, 0)}}
	someTTL    = []driver.Outgoing{{Body: []byte("mortal"), TTL: time.Minute}, {Group: "group", DeliverAt: aTime, TTL: 1}}
	someHigh   = []driver.Outgoing{{Body: []byte("high"), Priority: 9}, {Group: "group", TTL: 1, Priority: 1}}
	someUnique = []driver.Outgoing{{Body: []byte("unique"), UniqueKey: "key"}, {Group: "group", TTL: 1, Priority: 1, UniqueKey: "key", Replace: true}, {Replace: true}}
	aReceipt   = driver.Receipt{Handle: "receipt"}
)

// samples has every payload of the protocol.
func samples() []sample {
	return slices.Concat(requestSamples(), editSamples(), scheduleSamples(), slotSamples(), openedSamples(), answerSamples(), workerSamples())
}

func requestSamples() []sample {
	return []sample{
		{
			"start", oap.AppendStart(nil, &oap.StartRequest{Version: 1, Producer: [16]byte{1, 2, 15: 16}}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseStart(p); return oap.AppendStart(nil, &v), err },
		},
		{
			"open", oap.AppendName(nil, "orders"),
			func(p []byte) ([]byte, error) { v, err := oap.ParseName(p); return oap.AppendName(nil, v), err },
		},
		{
			"open identified", oap.AppendIdentifiedName(nil, "orders", "kq3v"),
			func(p []byte) ([]byte, error) {
				name, identity, err := oap.ParseIdentifiedName(p)
				return oap.AppendIdentifiedName(nil, name, identity), err
			},
		},
		{
			"know", oap.AppendKnown(nil, oap.KnownTraits),
			func(p []byte) ([]byte, error) { v, err := oap.ParseKnown(p); return oap.AppendKnown(nil, v), err },
		},
		{
			"stats", oap.AppendTarget(nil, aTarget),
			func(p []byte) ([]byte, error) { v, err := oap.ParseTarget(p); return oap.AppendTarget(nil, v), err },
		},
		{
			"configure", oap.AppendConfigure(nil, aTarget.Ticket, "orders", &aConfig),
			func(p []byte) ([]byte, error) {
				t, name, v, err := oap.ParseConfigure(p)
				return oap.AppendConfigure(nil, t, name, &v), err
			},
		},
		{
			"delete", oap.AppendDelete(nil, aTarget.Ticket, "orders"),
			func(p []byte) ([]byte, error) {
				t, name, err := oap.ParseDelete(p)
				return oap.AppendDelete(nil, t, name), err
			},
		},
		{"send", appendSend(aTarget, someOut), func(p []byte) ([]byte, error) {
			t, v, err := oap.ParseSend(p, nil)
			return appendSend(t, v), err
		}},
		{"send with times to live", appendSend(aTarget, someTTL), func(p []byte) ([]byte, error) {
			t, v, err := oap.ParseSend(p, nil)
			return appendSend(t, v), err
		}},
		{"send with due times", appendSend(aTarget, someDue), func(p []byte) ([]byte, error) {
			t, v, err := oap.ParseSend(p, nil)
			return appendSend(t, v), err
		}},
		{
			"receive", oap.AppendReceive(nil, 7, driver.ReceiveRequest{Max: 10, MaxBytes: 1 << 20, Visibility: time.Minute, Wait: -1}),
			func(p []byte) ([]byte, error) {
				t, v, err := oap.ParseReceive(p)
				return oap.AppendReceive(nil, t.Handle, v), err
			},
		},
		{
			"subscribe", oap.AppendSubscribe(nil, &oap.SubscribeRequest{Target: aTarget, Visibility: time.Minute, Credit: 100}),
			func(p []byte) ([]byte, error) {
				v, err := oap.ParseSubscribe(p)
				return oap.AppendSubscribe(nil, &v), err
			},
		},
		{"ack", oap.AppendAck(nil, aTarget, []driver.Receipt{aReceipt, {Handle: "x"}}), func(p []byte) ([]byte, error) {
			t, v, err := oap.ParseAck(p, nil)
			return oap.AppendAck(nil, t, v), err
		}},
		{
			"nack", oap.AppendNack(nil, aTarget, []driver.Nack{{Receipt: aReceipt, Delay: time.Second, Cause: "because"}}),
			func(p []byte) ([]byte, error) {
				t, v, err := oap.ParseNack(p, nil)
				return oap.AppendNack(nil, t, v), err
			},
		},
		{
			"release", oap.AppendRelease(nil, aTarget, []driver.Nack{
				{Receipt: aReceipt, Delay: time.Second, Cause: "because", Mode: driver.NackRelease},
				{Receipt: aReceipt, Mode: driver.NackPutBack},
			}),
			func(p []byte) ([]byte, error) {
				t, v, err := oap.ParseRelease(p, nil)
				return oap.AppendRelease(nil, t, v), err
			},
		},
		{
			"extend", oap.AppendExtend(nil, aTarget, []driver.Extension{{Receipt: aReceipt, Visibility: time.Hour}}),
			func(p []byte) ([]byte, error) {
				t, v, err := oap.ParseExtend(p, nil)
				return oap.AppendExtend(nil, t, v), err
			},
		},
		{
			"bury", oap.AppendDeadLetterRequests(nil, aTarget, []driver.DeadLetterRequest{{Receipt: aReceipt, Reason: driver.ReasonParse, Error: "e", ErrorType: "t"}}),
			func(p []byte) ([]byte, error) {
				t, v, err := oap.ParseDeadLetterRequests(p, nil)
				return oap.AppendDeadLetterRequests(nil, t, v), err
			},
		},
		{
			"peek", oap.AppendPeek(nil, aTarget, &driver.Query{
				States: []driver.State{driver.StateReady, driver.StateDead}, ID: "id", Attributes: map[string]string{"k": "v"},
				OlderThan: time.Hour, Reason: driver.ReasonExpired, Limit: 10,
			}),
			func(p []byte) ([]byte, error) { t, v, err := oap.ParsePeek(p); return oap.AppendPeek(nil, t, &v), err },
		},
		{
			"redrive", oap.AppendRedrive(nil, &oap.Redrive{Target: aTarget, IDs: []string{"a", "b"}, Limit: 1}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseRedrive(p); return oap.AppendRedrive(nil, &v), err },
		},
		{
			"discard", oap.AppendDiscard(nil, aTarget, []string{"a", "b"}),
			func(p []byte) ([]byte, error) {
				t, v, err := oap.ParseDiscard(p)
				return oap.AppendDiscard(nil, t, v), err
			},
		},
	}
}

func openedSamples() []sample {
	return []sample{
		{
			"opened", oap.AppendOpened(nil, &oap.Opened{Handle: 7, Traits: driver.Traits{
				Ordering: driver.OrderingFIFO, Durability: driver.DurabilityDisk, ExactStats: true, Groups: true, DeadLetters: true, Peek: true,
				DedupWindow: time.Minute, MaxBodyBytes: 1 << 20, MaxBatch: 256, MaxDelay: time.Minute, MaxVisibility: time.Hour,
			}}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseOpened(p); return oap.AppendOpened(nil, &v), err },
		},
		{
			"identified", oap.AppendIdentified(nil, &oap.Opened{Handle: 7, Identity: "kq3v", Traits: driver.Traits{
				Ordering: driver.OrderingFIFO, MaxBodyBytes: 1 << 20, MaxAttributes: 63, MaxAttributeBytes: 62 << 10,
			}}),
			func(p []byte) ([]byte, error) {
				v, err := oap.ParseIdentified(p)
				return oap.AppendIdentified(nil, &v), err
			},
		},
		{
			"opened with times to live", oap.AppendOpened(nil, &oap.Opened{Handle: 9, Traits: driver.Traits{TTL: true}}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseOpened(p); return oap.AppendOpened(nil, &v), err },
		},
		{
			"opened with priorities", oap.AppendOpened(nil, &oap.Opened{Handle: 9, Traits: driver.Traits{Priorities: true}}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseOpened(p); return oap.AppendOpened(nil, &v), err },
		},
		{
			"opened with unique keys", oap.AppendOpened(nil, &oap.Opened{Handle: 9, Traits: driver.Traits{UniqueKeys: true}}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseOpened(p); return oap.AppendOpened(nil, &v), err },
		},
		{
			"opened with limits by group", oap.AppendOpened(nil, &oap.Opened{Handle: 9, Traits: driver.Traits{GroupLimits: true}}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseOpened(p); return oap.AppendOpened(nil, &v), err },
		},
		{
			"opened with due times", oap.AppendOpened(nil, &oap.Opened{Handle: 9, Traits: driver.Traits{DeliverAt: true}}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseOpened(p); return oap.AppendOpened(nil, &v), err },
		},
		{
			"opened with edits", oap.AppendOpened(nil, &oap.Opened{Handle: 9, Traits: driver.Traits{Edit: true}}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseOpened(p); return oap.AppendOpened(nil, &v), err },
		},
		{
			"pausable opened", oap.AppendOpened(nil, &oap.Opened{Handle: 9, Traits: driver.Traits{Pause: true}}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseOpened(p); return oap.AppendOpened(nil, &v), err },
		},
		{
			"releasing opened", oap.AppendOpened(nil, &oap.Opened{Handle: 9, Traits: driver.Traits{Release: true}}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseOpened(p); return oap.AppendOpened(nil, &v), err },
		},
		{
			"fair opened", oap.AppendOpened(nil, &oap.Opened{Handle: 8, Traits: driver.Traits{Groups: true, FairGroups: true}}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseOpened(p); return oap.AppendOpened(nil, &v), err },
		},
	}
}

func editSamples() []sample {
	return []sample{
		{
			"edit", oap.AppendEdit(nil, aTarget, "a", &driver.Edit{DeliverAt: aTime}),
			func(p []byte) ([]byte, error) {
				t, id, v, err := oap.ParseEdit(p)
				return oap.AppendEdit(nil, t, id, &v), err
			},
		},
		{
			"stats throttled answer", oap.AppendStatsPaused(nil, driver.Stats{Ready: 9, Throttled: 7}),
			func(p []byte) ([]byte, error) {
				v, err := oap.ParseStatsPaused(p)
				return oap.AppendStatsPaused(nil, v), err
			},
		},
		{
			"throttle", oap.AppendThrottle(nil, aTarget, "tenant-a", time.Minute),
			func(p []byte) ([]byte, error) {
				t, group, wait, err := oap.ParseThrottle(p)
				return oap.AppendThrottle(nil, t, group, wait), err
			},
		},
		{"send with unique keys", appendSend(aTarget, someUnique), func(p []byte) ([]byte, error) {
			t, v, err := oap.ParseSend(p, nil)
			return appendSend(t, v), err
		}},
		{"send with priorities", appendSend(aTarget, someHigh), func(p []byte) ([]byte, error) {
			t, v, err := oap.ParseSend(p, nil)
			return appendSend(t, v), err
		}},
		{
			"edit of the priority", oap.AppendEdit(nil, aTarget, "a", &driver.Edit{Prioritize: true, Priority: 7}),
			func(p []byte) ([]byte, error) {
				t, id, v, err := oap.ParseEdit(p)
				return oap.AppendEdit(nil, t, id, &v), err
			},
		},
		{
			"edit that removes", oap.AppendEdit(nil, aTarget, "a", &driver.Edit{Remove: true}),
			func(p []byte) ([]byte, error) {
				t, id, v, err := oap.ParseEdit(p)
				return oap.AppendEdit(nil, t, id, &v), err
			},
		},
	}
}

var aSchedule = driver.Schedule{
	Name: "nightly", Definition: []byte("{}"), Revision: 1<<53 - 1, Through: aTime, Now: aTime.Add(time.Hour),
	Runs: []driver.Run{{Due: aTime, At: aTime, MessageID: "m"}, {At: aTime, MessageID: "n"}},
}

func scheduleSamples() []sample {
	fire := func(p []byte) ([]byte, error) {
		t, v, err := oap.ParseFire(p)
		return oap.AppendFire(nil, t, &v), err
	}
	return []sample{
		{"fire", oap.AppendFire(nil, aTarget, &driver.Firing{
			Name: "nightly", Revision: 7, Definition: []byte{}, Through: aTime, Messages: []driver.DueMessage{
				{Due: aTime, Outgoing: driver.Outgoing{Body: []byte("a"), Attributes: map[string]string{"k": "v"}}}, {},
			},
		}), fire},
		{"fire that removes", oap.AppendFire(nil, aTarget, &driver.Firing{Name: "nightly", Revision: 7, Remove: true}), fire},
		{"fired", oap.AppendFired(nil, true, &aSchedule), func(p []byte) ([]byte, error) {
			done, v, err := oap.ParseFired(p)
			return oap.AppendFired(nil, done, &v), err
		}},
		{"schedules request", oap.AppendSchedules(nil, aTarget, "nightly"), func(p []byte) ([]byte, error) {
			t, name, err := oap.ParseSchedulesRequest(p)
			return oap.AppendSchedules(nil, t, name), err
		}},
		{"schedules", oap.AppendSchedule(oap.AppendSchedule(nil, &aSchedule), &driver.Schedule{Name: "empty"}), func(p []byte) (dst []byte, err error) {
			all, err := oap.ParseSchedules(p)
			for i := range all {
				dst = oap.AppendSchedule(dst, &all[i])
			}
			return dst, err
		}},
		{
			"opened with schedules", oap.AppendOpened(nil, &oap.Opened{Handle: 9, Traits: driver.Traits{Schedules: true}}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseOpened(p); return oap.AppendOpened(nil, &v), err },
		},
	}
}

func slotSamples() []sample {
	ticket := oap.Ticket{Sequence: 9, Behind: 2}
	answer := driver.Answer{Body: []byte("a"), Failure: "f", FailureKind: "k"}
	slot := func(p []byte) ([]byte, error) { v, err := oap.ParseSlot(p); return oap.AppendSlot(nil, &v), err }
	return []sample{
		{"slot id", oap.AppendSlotID(nil, ticket, "s"), func(p []byte) ([]byte, error) {
			t, id, err := oap.ParseSlotID(p)
			return oap.AppendSlotID(nil, t, id), err
		}},
		{"slot and time", oap.AppendSlotTime(nil, ticket, "s", time.Minute), func(p []byte) ([]byte, error) {
			t, id, d, err := oap.ParseSlotTime(p)
			return oap.AppendSlotTime(nil, t, id, d), err
		}},
		{"send asking", oap.AppendAsking(nil, aTarget, "s", time.Minute, &someOut[0]), func(p []byte) ([]byte, error) {
			t, id, ttl, m, err := oap.ParseAsking(p)
			return oap.AppendAsking(nil, t, id, ttl, &m), err
		}},
		{"resolve", oap.AppendResolve(nil, ticket, "s", &answer), func(p []byte) ([]byte, error) {
			t, id, v, err := oap.ParseResolve(p)
			return oap.AppendResolve(nil, t, id, &v), err
		}},
		{"answer", oap.AppendAnswering(nil, aTarget, &driver.Receipt{Handle: "r"}, "s", &answer), func(p []byte) ([]byte, error) {
			t, receipt, id, v, err := oap.ParseAnswering(p)
			return oap.AppendAnswering(nil, t, &receipt, id, &v), err
		}},
		{"slots", oap.AppendSlotLimit(nil, ticket, 100), func(p []byte) ([]byte, error) {
			t, limit, err := oap.ParseSlotLimit(p)
			return oap.AppendSlotLimit(nil, t, limit), err
		}},
		{"resolved slot", oap.AppendSlot(nil, &driver.Slot{
			ID: "s", State: driver.SlotResolved, Answer: answer, CreatedAt: aTime, ExpiresAt: aTime.Add(time.Minute), ResolvedAt: aTime.Add(time.Second),
		}), slot},
		{"expired slot", oap.AppendSlot(nil, &driver.Slot{ID: "s", State: driver.SlotExpired, CreatedAt: aTime, ExpiresAt: aTime}), slot},
	}
}

func answerSamples() []sample {
	return []sample{
		{
			"started", oap.AppendStarted(nil, &oap.StartAnswer{
				Version: 1, Server: [16]byte{9}, Resumed: true, Window: 1024, MaxInFlight: 1024, MaxFrame: oap.MaxFrameBytes,
			}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseStarted(p); return oap.AppendStarted(nil, &v), err },
		},
		{"config with ageing", oap.AppendConfig(nil, &driver.Config{PriorityAging: time.Minute}), againConfig},
		{"config with limits by group", oap.AppendConfig(nil, &driver.Config{FairGroups: true, GroupLimits: "rate=2"}), againConfig},
		{"fair config", oap.AppendConfig(nil, &aFairConfig), againConfig},
		{"config", oap.AppendConfig(nil, &aConfig), againConfig},
		{
			"error", oap.AppendError(nil, &anError),
			func(p []byte) ([]byte, error) {
				v, err := oap.ParseError(p)
				if err != nil {
					return nil, err
				}
				return oap.AppendError(nil, v), nil
			},
		},
		{
			"sent", oap.AppendSent(nil, []driver.Sent{{ID: "a"}, {ID: "b", Duplicate: true}, {}}, []error{2: &anError}),
			func(p []byte) ([]byte, error) {
				sent := make([]driver.Sent, 3)
				errs, err := oap.ParseSent(p, sent)
				return oap.AppendSent(nil, sent, errs), err
			},
		},
		{"granted", oap.AppendGranted(nil, []time.Duration{time.Minute, 0}, []error{nil, &anError}), func(p []byte) ([]byte, error) {
			granted, batch, err := oap.ParseGranted(p, 2)
			if err != nil {
				return nil, err
			}
			var errs []error
			if batch != nil {
				errs = batch.Errs
			}
			return oap.AppendGranted(nil, granted, errs), nil
		}},
		{"failures", oap.AppendFailures(nil, []error{nil, &anError, nil, &anError}), func(p []byte) ([]byte, error) {
			batch, err := oap.ParseFailures(p, 4)
			if batch == nil {
				return oap.AppendFailures(nil, nil), err
			}
			return oap.AppendFailures(nil, batch.Errs), err
		}},
		{"replaced", oap.AppendSent(nil, []driver.Sent{{ID: "a", Duplicate: true, Replaced: true}}, nil), func(p []byte) ([]byte, error) {
			sent := make([]driver.Sent, 1)
			errs, err := oap.ParseSent(p, sent)
			return oap.AppendSent(nil, sent, errs), err
		}},
		{"deliveries", appendDeliveries([]driver.Delivery{
			{Message: aMessage, Receipt: aReceipt},
			{Message: driver.Message{ID: "x", Deliveries: 1, EnqueuedAt: aTime}, Receipt: aReceipt},
		}), func(p []byte) ([]byte, error) { v, err := oap.ParseDeliveries(p, nil); return appendDeliveries(v), err }},
		{"delivery with a priority", appendDeliveries([]driver.Delivery{
			{Message: driver.Message{ID: "x", Deliveries: 1, EnqueuedAt: aTime, Priority: 9}, Receipt: aReceipt},
		}), func(p []byte) ([]byte, error) { v, err := oap.ParseDeliveries(p, nil); return appendDeliveries(v), err }},
		{"delivery whose slot waits", appendDeliveries([]driver.Delivery{
			{Message: driver.Message{ID: "x", Deliveries: 1, EnqueuedAt: aTime, ReplyTo: "reply:y"}, Receipt: aReceipt, SlotPending: true},
		}), func(p []byte) ([]byte, error) { v, err := oap.ParseDeliveries(p, nil); return appendDeliveries(v), err }},
		{"deadletters", oap.AppendDeadLetter(nil, &aLetter), func(p []byte) ([]byte, error) {
			letters, err := oap.ParseDeadLetters(p)
			var again []byte
			for i := range letters {
				again = oap.AppendDeadLetter(again, &letters[i])
			}
			return again, err
		}},
		{
			"peeked", oap.AppendPeeked(nil, &driver.Peeked{DeadLetter: aLetter, State: driver.StateDelayed, DueAt: aTime}),
			func(p []byte) ([]byte, error) {
				peeked, err := oap.ParsePeeked(p)
				var again []byte
				for i := range peeked {
					again = oap.AppendPeeked(again, &peeked[i])
				}
				return again, err
			},
		},
		{
			"stats answer", oap.AppendStats(nil, driver.Stats{Ready: 1, Delayed: 2, InFlight: 3, Dead: 400}),
			func(p []byte) ([]byte, error) { v, err := oap.ParseStats(p); return oap.AppendStats(nil, v), err },
		},
		{
			"edited", oap.AppendEdited(nil, driver.StateDelayed),
			func(p []byte) ([]byte, error) { v, err := oap.ParseEdited(p); return oap.AppendEdited(nil, v), err },
		},
		{
			"stats paused answer", oap.AppendStatsPaused(nil, driver.Stats{Ready: 1, Delayed: 2, InFlight: 3, Dead: 400, Paused: true}),
			func(p []byte) ([]byte, error) {
				v, err := oap.ParseStatsPaused(p)
				return oap.AppendStatsPaused(nil, v), err
			},
		},
		{
			"count", oap.AppendCount(nil, 300),
			func(p []byte) ([]byte, error) { v, err := oap.ParseCount(p); return oap.AppendCount(nil, v), err },
		},
		{"moved", oap.AppendMoved(nil, 3, &anError), func(p []byte) ([]byte, error) {
			n, failure, err := oap.ParseMoved(p)
			if failure == nil {
				return oap.AppendMoved(nil, n, nil), err
			}
			return oap.AppendMoved(nil, n, failure), err
		}},
		{"queues", oap.AppendQueueName(oap.AppendQueueName(nil, "a"), "b"), func(p []byte) ([]byte, error) {
			names, err := oap.ParseQueueNames(p)
			var again []byte
			for _, name := range names {
				again = oap.AppendQueueName(again, name)
			}
			return again, err
		}},
	}
}

// againConfig parses a configuration and writes it again.
func againConfig(p []byte) ([]byte, error) {
	v, err := oap.ParseConfig(p)
	return oap.AppendConfig(nil, &v), err
}

func appendSend(t oap.Target, msgs []driver.Outgoing) []byte {
	dst := oap.AppendSend(nil, t, len(msgs))
	for i := range msgs {
		dst = oap.AppendOutgoing(dst, &msgs[i])
	}
	return dst
}

func appendDeliveries(deliveries []driver.Delivery) (dst []byte) {
	for i := range deliveries {
		dst = oap.AppendDelivery(dst, &deliveries[i])
	}
	return dst
}
