package main

import (
	"context"

	"github.com/mailboxmq/mailbox/membox"
)

const memoryMessages = 50_000

// workersInMemory compares a Loop with the bare cycle on the memory backend, where nothing
// else takes time.
func (r *report) workersInMemory() error {
	loop := func(prefetch int) func(messages, handlers int) (*workload, error) {
		return func(messages, handlers int) (*workload, error) {
			backend := membox.New(nil)
			orders, err := fillMailbox(context.Background(), backend, messages)
			if err != nil {
				return nil, err
			}
			return &workload{work: loopOver(orders, handlers, prefetch), ours: true, close: backend.Close}, nil
		}
	}
	tasks := []workerTask{
		{name: "bare cycle", fill: func(messages, handlers int) (*workload, error) {
			backend := membox.New(nil)
			orders, err := fillMailbox(context.Background(), backend, messages)
			if err != nil {
				return nil, err
			}
			return &workload{work: cycleOver(orders, handlers), close: backend.Close}, nil
		}},
		{name: "Loop", atLeast: 0.8, fill: loop(0)},
		{name: "Loop, prefetch 128", atLeast: 0.8, fill: loop(128)},
	}
	for _, handlers := range []int{1, 8, 64} {
		if err := r.workers("handlers in memory", memoryMessages, handlers, tasks); err != nil {
			return err
		}
	}
	return nil
}
