package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// A postgresServer is a PostgreSQL process with a directory of its own, that listens on a
// socket in it and on no port. It ends with this process. It has default settings: every
// commit is synced.
type postgresServer struct {
	url     string
	dir     string
	command *exec.Cmd
	log     bytes.Buffer
}

// postgresBinary finds a program of PostgreSQL's, which Debian does not have on the PATH.
func postgresBinary(name string) (string, error) {
	if folder := os.Getenv("MAILBOX_POSTGRES_BIN"); folder != "" {
		return exec.LookPath(filepath.Join(folder, name))
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("PostgreSQL: %w; make setup-bench installs it", errMissing)
	}
	return slices.Max(found), nil
}

// asPostgres sets the user of the server: this user or, because PostgreSQL refuses root,
// the user of its package.
func asPostgres() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root: %w", err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

func startPostgres(dir string) (*postgresServer, error) {
	initdb, err := postgresBinary("initdb")
	if err != nil {
		return nil, err
	}
	binary, err := postgresBinary("postgres")
	if err != nil {
		return nil, err
	}
	owner, err := asPostgres()
	if err != nil {
		return nil, err
	}
	s := &postgresServer{}
	if s.dir, err = os.MkdirTemp(dir, "mailbox-bench-pg-"); err != nil {
		return nil, err
	}
	if owner != nil {
		if err := os.Chown(s.dir, int(owner.Uid), int(owner.Gid)); err != nil {
			return nil, errors.Join(err, os.RemoveAll(s.dir))
		}
	}
	data := filepath.Join(s.dir, "data")
	create := exec.Command(initdb, "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale")
	create.Dir, create.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: owner}
	if out, err := create.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w: %s", err, out), os.RemoveAll(s.dir))
	}
	s.url = "host=" + s.dir + " user=bench dbname=postgres"
	s.command = exec.Command(binary, "-D", data, "-k", s.dir, "-c", "listen_addresses=")
	s.command.Dir, s.command.Stderr = s.dir, &s.log
	// An orderly stop, because it has child processes.
	s.command.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Pdeathsig: syscall.SIGINT}
	if err := s.command.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	if err := s.answers(); err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: %w", err), s.close(), errors.New(s.log.String()))
	}
	return s, nil
}

// answers waits until the server answers.
func (s *postgresServer) answers() (err error) {
	ctx := context.Background()
	for range 500 {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, s.url); err == nil {
			return conn.Close(ctx)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// close stops the server without waiting for clients.
func (s *postgresServer) close() error {
	_ = s.command.Process.Signal(syscall.SIGINT)
	_ = s.command.Wait() // it was told to stop
	return os.RemoveAll(s.dir)
}
