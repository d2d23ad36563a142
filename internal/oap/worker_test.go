package oap_test

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

var aWorker = oap.Worker{
	Queue: "orders", Name: "billing@host-7:4312", Protocol: "oap", Address: "10.0.0.7", Token: "0102", Since: aTime, Seen: aTime.Add(time.Second),
	Waiting: 1, InFlight: 2, Acked: 300, Failed: 4, Expired: 5,
	Held: []oap.HeldMessage{
		{ID: aMessage.ID, Attempt: 1, TakenAt: aTime, Until: aTime.Add(time.Minute), Progress: &driver.Progress{Fraction: 0.4, Text: "page 4 of 10"}, ReportedAt: aTime.Add(time.Second)},
		{ID: aMessage.ID, Attempt: 2, TakenAt: aTime, Until: aTime.Add(time.Minute)},
	},
}

func workerSamples() []sample {
	list := func(name string, known uint64) sample {
		payload := oap.AppendWorker(oap.AppendWorker(nil, &aWorker, known), &oap.Worker{Queue: "orders"}, known)
		return sample{name, payload, func(p []byte) (dst []byte, err error) {
			all, err := oap.ParseWorkers(p, known)
			for i := range all {
				dst = oap.AppendWorker(dst, &all[i], known)
			}
			return dst, err
		}}
	}
	reports := oap.AppendExtendProgress(nil, aTarget, []driver.Extension{
		{Receipt: aReceipt, Visibility: time.Hour, Progress: &driver.Progress{Fraction: 0.4, Text: "page 4 of 10"}},
		{Receipt: aReceipt, Visibility: time.Hour, Progress: &driver.Progress{Fraction: -1, Text: "?"}},
		{Receipt: aReceipt},
	})
	return []sample{list("workers", oap.PlainTraits), list("workers with progress", oap.KnownTraits), {"extend with progress", reports, func(p []byte) ([]byte, error) {
		t, v, err := oap.ParseExtendProgress(p, nil)
		return oap.AppendExtendProgress(nil, t, v), err
	}}}
}
