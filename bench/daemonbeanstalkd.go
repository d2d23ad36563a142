package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// beanstalkdStand starts beanstalkd, with a log that is synced at each write or
// with none. A connection handles one command at a time, so each worker has one. It has no
// batches.
func beanstalkdStand(durable bool) func(string, daemonShape) (*daemonStand, error) {
	return func(dir string, shape daemonShape) (*daemonStand, error) {
		if shape.batch > 1 && shape.batch < daemonBulk { // W4 sends one by one
			return nil, errNoBatches
		}
		binary, err := exec.LookPath(cmp.Or(os.Getenv("MAILBOX_BEANSTALKD"), "beanstalkd"))
		if err != nil {
			return nil, fmt.Errorf("beanstalkd: %w; make setup-bench installs it", errMissing)
		}
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		_, port, _ := net.SplitHostPort(address)
		arguments := []string{"-l", "127.0.0.1", "-p", port}
		if durable {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, err
			}
			arguments = append(arguments, "-b", dir, "-f0")
		}
		process, err := startDaemon(dir, []string{address}, binary, arguments...)
		if err != nil {
			return nil, err
		}
		stand := &daemonStand{process: process, shape: shape}
		for i := range 2 * shape.workers {
			connection, err := net.Dial("tcp", address)
			if err != nil {
				return nil, errors.Join(err, stand.close())
			}
			stand.onDisconnect(connection.Close)
			worker := &beanstalkdWorker{connection: connection, answers: bufio.NewReader(connection)}
			if i < shape.workers {
				stand.producers = append(stand.producers, worker.send)
			} else {
				stand.consumers = append(stand.consumers, worker)
			}
		}
		return stand, nil
	}
}

type beanstalkdWorker struct {
	connection net.Conn
	answers    *bufio.Reader
	request    []byte
	body       []byte
	job        string
}

// ask sends request and reads the first line of the answer.
func (w *beanstalkdWorker) ask() (string, error) {
	if _, err := w.connection.Write(w.request); err != nil {
		return "", err
	}
	line, err := w.answers.ReadString('\n')
	return strings.TrimSuffix(line, "\r\n"), err
}

func (w *beanstalkdWorker) send(bodies [][]byte) error {
	for _, body := range bodies {
		w.request = fmt.Appendf(w.request[:0], "put 0 0 %d %d\r\n", int(daemonVisibility.Seconds()), len(body))
		w.request = append(append(w.request, body...), "\r\n"...)
		answer, err := w.ask()
		if err != nil {
			return err
		}
		if !strings.HasPrefix(answer, "INSERTED ") {
			return errors.New(answer)
		}
	}
	return nil
}

func (w *beanstalkdWorker) receive() ([][]byte, error) {
	w.request = append(w.request[:0], "reserve-with-timeout 1\r\n"...)
	answer, err := w.ask()
	if err != nil || answer == "TIMED_OUT" {
		return nil, err
	}
	words := strings.Fields(answer)
	if len(words) != 3 || words[0] != "RESERVED" {
		return nil, errors.New(answer)
	}
	size, err := strconv.Atoi(words[2])
	if err != nil {
		return nil, err
	}
	w.job, w.body = words[1], append(w.body[:0], make([]byte, size+len("\r\n"))...)
	if _, err := io.ReadFull(w.answers, w.body); err != nil {
		return nil, err
	}
	return [][]byte{w.body[:size]}, nil
}

func (w *beanstalkdWorker) ack() error {
	w.request = fmt.Appendf(w.request[:0], "delete %s\r\n", w.job)
	answer, err := w.ask()
	if err == nil && answer != "DELETED" {
		err = errors.New(answer)
	}
	return err
}
