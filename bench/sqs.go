package main

import (
	"fmt"
	"os"
	"time"
)

// sqsSuite runs the real daemon side by side with emulators of SQS by others, each in a
// process of its own, over loopback. The client costs little: it signs sends before the
// clock starts, and only deletions, which need a receipt, while it runs.
func sqsSuite(r *report) {
	warnOfMemoryDisk(r.dir)
	if err := r.sqs(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (r *report) sqs() error {
	return r.serverSuite("sqs", sqsWorkloads(), r.sqsRows)
}

func sqsWorkloads() []daemonWorkload {
	confirmed := fmt.Sprintf("SQS, %d connections that send, %d that receive and delete", daemonWorkers, daemonWorkers)
	return []daemonWorkload{
		{"S1", confirmed + ", one message a request", 1, (*daemonStand).floodPrepared},
		{"S2", fmt.Sprintf("%s, batches of %d", confirmed, daemonBatch), daemonBatch, (*daemonStand).floodPrepared},
	}
}

// sqsRows returns the rows that the command line selects.
func (r *report) sqsRows(binaries string) ([]daemonRow, error) {
	builds, err := r.mailboxdBuilds(binaries)
	if err != nil {
		return nil, err
	}
	var all []daemonRow
	for _, build := range builds {
		for _, durable := range []bool{false, true} {
			all = append(all, daemonRow{peer: build.peer, durable: durable, open: mailboxdStand(build.binary, durable, overSQS)})
		}
	}
	all = append(all, daemonRow{peer: "fauxqs", open: fauxqsStand}, daemonRow{peer: "goaws", open: goawsStand(binaries)})
	return r.selectRows(all)
}

// floodPrepared is flood with sends that are signed before the clock starts. It sends as
// many messages as the server took in that time in the run before.
func (s *daemonStand) floodPrepared(during time.Duration) (daemonPace, error) {
	r := s.newRun()
	s.sqs.prepare(r, max(1, int(s.rate*during.Seconds())/s.shape.batch), s.shape)
	before := s.meter()
	r.start = time.Now()
	r.work(s, func(i int) {
		for request := s.sqs.take(); request != nil; request = s.sqs.take() {
			for range s.shape.batch {
				if !r.enter() {
					return
				}
			}
			if err := s.sqs.all[i].post(request); err != nil {
				r.fail(fmt.Errorf("send: %w", err))
			}
		}
	})
	pace := before.pace(s.meter(), r.last.Load(), time.Duration(r.ended.Load()))
	s.rate = pace.Rate
	return pace, r.check()
}
