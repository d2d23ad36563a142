package main

import (
	"os"
	"syscall"
)

// groupLog measures the limit of the disk: one goroutine appends all waiting records to
// a file, syncs it, and answers all callers. There is no checksum, no index and no way
// to read it back.
type groupLog struct {
	file    *os.File
	waiting chan *appending
	ended   chan struct{}
}

// An appending is one record to append.
type appending struct {
	record []byte
	answer chan error
}

// deepest bounds the records that wait for the log.
const deepest = 4096

func openGroupLog(path string) (*groupLog, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	l := &groupLog{file: file, waiting: make(chan *appending, deepest), ended: make(chan struct{})}
	go l.run()
	return l, nil
}

func (l *groupLog) run() {
	defer close(l.ended)
	var group []*appending
	var buf []byte
	for first := range l.waiting {
		group = append(group[:0], first)
		for range len(l.waiting) { // no other goroutine receives from it
			group = append(group, <-l.waiting)
		}
		buf = buf[:0]
		for _, a := range group {
			buf = append(buf, a.record...)
		}
		_, err := l.file.Write(buf)
		if err == nil {
			err = syscall.Fdatasync(int(l.file.Fd()))
		}
		for _, a := range group {
			a.answer <- err
		}
	}
}

// newCaller returns a function that appends one record and waits until it is synced.
func (l *groupLog) newCaller(record []byte) func() error {
	a := &appending{record: record, answer: make(chan error, 1)}
	return func() error {
		l.waiting <- a
		return <-a.answer
	}
}

func (l *groupLog) close() error {
	close(l.waiting)
	<-l.ended
	return l.file.Close()
}
