package proctest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A Package is an npm package that runs a server. It is installed in the cache under its own
// name.
type Package struct {
	Name string
	// Script serves the package in the directory given as argument. It prints the port, and
	// ends when its standard input is closed.
	Script string
}

// A Server is a process that serves a Package on a loopback port.
type Server struct {
	// Address is its host:port.
	Address string
	process *Process
	stdin   io.Closer // the process runs while it is open
	closing sync.Once
}

// startTimeout bounds the start of a server.
const startTimeout = 30 * time.Second

// Installed returns the directory of the package, or a MissingError.
func (p *Package) Installed() (dir string, err error) {
	if dir, err = Cache(p.Name); err == nil {
		_, err = os.Stat(filepath.Join(dir, "node_modules", p.Name))
	}
	if err == nil {
		_, err = exec.LookPath("node")
	}
	if err != nil {
		return "", &MissingError{p.Name, err}
	}
	return dir, nil
}

// Serve starts a server and returns when it listens, or a MissingError. The caller closes it.
func (p *Package) Serve() (*Server, error) {
	dir, err := p.Installed()
	if err != nil {
		return nil, err
	}
	command := exec.Command("node", "-e", p.Script, p.Name, dir) // with -e, the first argument is in the place of the script's name
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	process, err := launch(command)
	if err != nil {
		return nil, err
	}
	s := &Server{process: process, stdin: stdin}
	if err := s.await(); err != nil {
		s.Close()
		return nil, fmt.Errorf("start %s: %w; stderr:\n%s", p.Name, err, process.Stderr.String())
	}
	return s, nil
}

// await reads the port from the output.
func (s *Server) await() error {
	for until := time.Now().Add(startTimeout); time.Now().Before(until); {
		if port, _, whole := strings.Cut(s.process.Stdout.String(), "\n"); whole {
			s.Address = net.JoinHostPort("127.0.0.1", port)
			return nil
		}
		select {
		case <-s.process.Ended():
			return fmt.Errorf("process ended: %w", s.process.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fmt.Errorf("no port printed within %v", startTimeout)
}

// Close kills the server. Closing twice is fine.
func (s *Server) Close() {
	s.closing.Do(func() {
		s.process.Kill()
		_ = s.stdin.Close()
	})
}
