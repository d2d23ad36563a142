package dynamotest

import (
	"context"
	_ "embed" // for the script
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

//go:embed serve.js
var script string

var dynalite = proctest.Package{Name: "dynalite", Script: script}

// A Server is a dynalite process.
type Server struct {
	*proctest.Server
	outside *Outside
}

// Start starts a server, which is closed when the test ends, and returns when it answers.
func Start(t testing.TB) *Server {
	t.Helper()
	server, err := Launch(t.Context())
	if err != nil {
		proctest.End(t, err)
	}
	t.Cleanup(server.Close)
	return server
}

// Launch is Start without a test: the caller closes the server, which outlives ctx.
func Launch(ctx context.Context) (*Server, error) {
	process, err := dynalite.Serve()
	if err != nil {
		return nil, err
	}
	return &Server{process, newOutside(ctx)}, nil
}

// Endpoint returns the URL of the server.
func (s *Server) Endpoint() string { return "http://" + s.Address }

// Client returns a client of the server that works inside and outside of synctest bubbles.
// Options are applied last.
func (s *Server) Client(options ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(s.Endpoint()), HTTPClient: s.outside,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}, options...)
}

// Outside returns the HTTP client that Client uses, for wrapping.
func (s *Server) Outside() *Outside { return s.outside }

// Close kills the server. Closing twice is fine.
func (s *Server) Close() {
	s.outside.close()
	s.Server.Close()
}
