package rpcapi

import (
	"context"
	"errors"
	"path"
	"time"

	"connectrpc.com/connect"
)

// interceptor runs between the library and the handlers: it refuses invalid requests,
// and sets the deadlines of the client.
type interceptor struct{}

// WrapUnary is for calls with one request and one answer.
func (interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		c := callOf(ctx)
		began := time.Now()
		c.arrived()
		response, err := c.unary(ctx, request, next)
		c.counted(request.Spec(), began, err)
		return response, err
	}
}

func (c *call) unary(ctx context.Context, request connect.AnyRequest, next connect.UnaryFunc) (connect.AnyResponse, error) {
	if err := c.checked(request.Any()); err != nil {
		return nil, err
	}
	response, err := next(ctx, request)
	c.allowWrite()
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	return response, nil
}

// counted counts a finished call.
func (c *call) counted(spec connect.Spec, began time.Time, err error) {
	code := "ok"
	switch {
	case errors.Is(err, context.Canceled):
		code = connect.CodeCanceled.String()
	case errors.Is(err, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded.String()
	case err != nil:
		code = connect.CodeOf(err).String()
	}
	c.handler.broker.Metrics().RPC(path.Base(spec.Procedure), code, time.Since(began))
}

// WrapStreamingClient is unused: the daemon has no clients.
func (interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is for streams.
func (interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		c := callOf(ctx)
		began := time.Now()
		err := next(ctx, &strictConn{StreamingHandlerConn: conn, call: c})
		c.allowWrite()
		err = c.failed(ctx, err)
		c.counted(conn.Spec(), began, err)
		return err
	}
}

// checked returns the error of an invalid request.
func (c *call) checked(request any) error {
	err := flawOf(request)
	if err == nil {
		return nil
	}
	c.handler.broker.Metrics().Rejected("schema")
	return c.fault(err)
}

// strictConn is a stream whose requests are read strictly, and whose answers must
// be read in time.
type strictConn struct {
	connect.StreamingHandlerConn
	call *call
}

func (s *strictConn) Receive(message any) error {
	if err := s.StreamingHandlerConn.Receive(message); err != nil {
		return err
	}
	s.call.arrived()
	return s.call.checked(message)
}

func (s *strictConn) Send(message any) error {
	s.call.allowWrite()
	defer s.call.written()
	return s.StreamingHandlerConn.Send(message)
}
