package sqstest

import (
	"bufio"
	"bytes"
	_ "embed" // for the script
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

//go:embed serve.js
var script string

// patience is how long fauxqs may take to start.
const patience = 30 * time.Second

// installed is where tools/fauxqs.sh puts it, from the root of the module.
const installed = ".cache/fauxqs"

const missing = "sqstest: fauxqs is needed for these tests: use make test, or run make servers once, which installs it"

// A Server is a fauxqs process.
type Server struct {
	address   string
	command   *exec.Cmd
	stdin     io.Closer // while it is open, the process lives
	output    *buffer
	transport *http.Transport
	closing   sync.Once
}

// Start starts a server and returns when it answers. It is closed when the test
// ends.
func Start(t testing.TB) *Server {
	t.Helper()
	server, err := Launch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// Launch is Start for who has no test, and closes the server by itself.
func Launch() (*Server, error) {
	dir, err := findFauxqs()
	if err != nil {
		return nil, err
	}
	s := &Server{command: exec.Command("node", "-e", script, "fauxqs", dir), output: &buffer{}}
	// With -e the script is no argument, so "fauxqs" stands in its place.
	stdin, err := s.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.stdin, s.command.Stderr = stdin, s.output
	if err := s.command.Start(); err != nil {
		return nil, fmt.Errorf("%s (%w)", missing, err)
	}
	// Nothing is printed if it cannot start, and the end of the process is the end
	// of its output.
	stuck := time.AfterFunc(patience, func() { _ = s.command.Process.Kill() })
	defer stuck.Stop()
	port, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("sqstest: fauxqs does not start (%w); it says:\n%s", err, s.output)
	}
	s.address = net.JoinHostPort("127.0.0.1", strings.TrimSpace(port))
	s.transport = &http.Transport{MaxIdleConnsPerHost: 256}
	return s, nil
}

// findFauxqs returns the directory in which fauxqs is installed, which is below the
// root of the module.
func findFauxqs() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", errors.New("sqstest: there is no go.mod above this directory")
		}
		dir = above
	}
	dir = filepath.Join(dir, filepath.FromSlash(installed))
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "fauxqs")); err != nil {
		return "", fmt.Errorf("%s (%w)", missing, err)
	}
	return dir, nil
}

// Endpoint is the address of the server as a URL.
func (s *Server) Endpoint() string { return "http://" + s.address }

// Client returns a client of the server. Options come last, and win.
func (s *Server) Client(options ...func(*sqs.Options)) *sqs.Client {
	return sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(s.Endpoint()),
		HTTPClient:  &http.Client{Transport: s.transport},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}, options...)
}

// Close kills the server. Closing twice is fine.
func (s *Server) Close() {
	s.closing.Do(func() {
		if s.transport != nil {
			s.transport.CloseIdleConnections()
		}
		_ = s.command.Process.Kill()
		_ = s.stdin.Close()
		_ = s.command.Wait() // how a killed process ended says nothing
	})
}

// A buffer keeps what a process says.
type buffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *buffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(data)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
