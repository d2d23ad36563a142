package sqstest

import (
	_ "embed" // for the script
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

//go:embed serve.js
var script string

var fauxqs = proctest.Package{Name: "fauxqs", Script: script}

// A Server is a fauxqs process.
type Server struct {
	*proctest.Server
	transport *http.Transport
}

// Start starts a server, which is closed when the test ends, and returns when it answers.
func Start(t testing.TB) *Server {
	t.Helper()
	server, err := Launch()
	if err != nil {
		proctest.End(t, err)
	}
	t.Cleanup(server.Close)
	return server
}

// Launch is Start without a test: the caller closes the server.
func Launch() (*Server, error) {
	process, err := fauxqs.Serve()
	if err != nil {
		return nil, err
	}
	return &Server{process, &http.Transport{MaxIdleConnsPerHost: 256}}, nil
}

// Endpoint returns the URL of the server.
func (s *Server) Endpoint() string { return "http://" + s.Address }

// Client returns a client of the server. Options are applied last.
func (s *Server) Client(options ...func(*sqs.Options)) *sqs.Client {
	return sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(s.Endpoint()),
		HTTPClient:  &http.Client{Transport: s.transport},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}, options...)
}

// Close kills the server. Closing twice is fine.
func (s *Server) Close() {
	s.transport.CloseIdleConnections()
	s.Server.Close()
}
