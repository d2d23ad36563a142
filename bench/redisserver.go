package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

// A redisServer is a Redis process on a free port, with a directory of its own. It ends
// with this process.
type redisServer struct {
	addr    string
	dir     string
	command *exec.Cmd
	client  rueidis.Client // for questions about the server, between measurements
}

// startRedis starts a server with further settings, pairs of name and value.
func startRedis(dir string, settings ...string) (*redisServer, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("the redis suite needs redis-server: make setup-bench installs it (%w)", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &redisServer{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	if s.dir, err = os.MkdirTemp(dir, "mailbox-bench-redis-"); err != nil {
		return nil, err
	}
	arguments := []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", s.dir, "--save", "", "--loglevel", "warning"}
	for i := 0; i < len(settings); i += 2 {
		arguments = append(arguments, "--"+settings[i], settings[i+1])
	}
	s.command = exec.Command(binary, arguments...)
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.command.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	if err := s.connect(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// connect waits until the server answers.
func (s *redisServer) connect() (err error) {
	for range 500 {
		if s.client, err = newRueidis(s.addr); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

func (s *redisServer) close() error {
	if s.client != nil {
		s.client.Close()
	}
	_ = s.command.Process.Kill()
	_ = s.command.Wait() // it was killed
	return os.RemoveAll(s.dir)
}

// newRueidis connects with a client that sends no pings of its own while a
// measurement lasts.
func newRueidis(addr string) (rueidis.Client, error) {
	option := rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true}
	option.Dialer.KeepAlive = time.Hour
	return rueidis.NewClient(option)
}

// A traffic is what a server has done so far: commands, including those in scripts, and
// reads from connections. A pipelined batch is one read, so that counts round trips.
type traffic struct{ commands, reads uint64 }

func (s *redisServer) traffic() (t traffic, err error) {
	text, err := s.client.Do(context.Background(), s.client.B().Info().Section("stats").Build()).ToString()
	if err != nil {
		return t, err
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		number, _ := strconv.ParseUint(value, 10, 64) // 0 for values that are not numbers, which are not used
		switch name {
		case "total_commands_processed":
			t.commands = number
		case "total_reads_processed":
			t.reads = number
		}
	}
	return t, nil
}

func (s *redisServer) flush() error {
	return s.client.Do(context.Background(), s.client.B().Flushall().Build()).Error()
}
