package oap_test

import (
	"time"

	"github.com/mailboxmq/mailbox/internal/oap"
)

var aWorker = oap.Worker{
	Queue: "orders", Name: "billing@host-7:4312", Protocol: "oap", Address: "10.0.0.7", Token: "0102", Since: aTime, Seen: aTime.Add(time.Second),
	Waiting: 1, InFlight: 2, Acked: 300, Failed: 4, Expired: 5,
	Held: []oap.HeldMessage{{ID: aMessage.ID, Attempt: 1, TakenAt: aTime, Until: aTime.Add(time.Minute)}},
}

func workerSamples() []sample {
	return []sample{{"workers", oap.AppendWorker(oap.AppendWorker(nil, &aWorker), &oap.Worker{Queue: "orders"}), func(p []byte) (dst []byte, err error) {
		all, err := oap.ParseWorkers(p)
		for i := range all {
			dst = oap.AppendWorker(dst, &all[i])
		}
		return dst, err
	}}}
}
