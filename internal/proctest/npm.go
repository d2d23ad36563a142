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

// A Package is one of npm that serves something. It is installed in the cache under its
// own name.
type Package struct {
	Name string
	// Script serves what is in the directory given as argument: it prints the port, and
	// ends when its standard input does.
	Script string
	// Install says how to install it, as in "use make test".
	Install string
}

// A Server is a process that serves a Package on a port of the loopback interface.
type Server struct {
	// Address is its host:port.
	Address string
	process *Process
	stdin   io.Closer // while it is open, the process lives
	closing sync.Once
}

// startPatience is how long a server may take to start.
const startPatience = 30 * time.Second

// Serve starts a server and returns when it has a port, or says why it has none. The caller closes it.
func (p *Package) Serve() (*Server, error) {
	dir, err := Cache(p.Name)
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "node_modules", p.Name))
	}
	if err != nil {
		return nil, p.missing(err)
	}
	command := exec.Command("node", "-e", p.Script, p.Name, dir) // with -e the script is no argument, so the name stands in its place
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	process, err := launch(command)
	if err != nil {
		return nil, p.missing(err)
	}
	s := &Server{process: process, stdin: stdin}
	if err := s.await(); err != nil {
		s.Close()
		return nil, fmt.Errorf("%s does not start: %w; it says:\n%s", p.Name, err, process.Stderr.String())
	}
	return s, nil
}

// await reads the port.
func (s *Server) await() error {
	for until := time.Now().Add(startPatience); time.Now().Before(until); {
		if port, _, whole := strings.Cut(s.process.Stdout.String(), "\n"); whole {
			s.Address = net.JoinHostPort("127.0.0.1", port)
			return nil
		}
		select {
		case <-s.process.Ended():
			return fmt.Errorf("it has ended: %w", s.process.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fmt.Errorf("it prints no port within %v", startPatience)
}

func (p *Package) missing(err error) error {
	return fmt.Errorf("%s is needed for these tests: %s, which installs it (%w)", p.Name, p.Install, err)
}

// Close kills the server. Closing twice is fine.
func (s *Server) Close() {
	s.closing.Do(func() {
		s.process.Kill()
		_ = s.stdin.Close()
	})
}
