package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// An api is a client of the daemon's HTTP API.
type api struct {
	endpoint *endpoint
	token    capability.Token
	client   *http.Client
	tenant   string // whose queues are read; empty means the token's
}

const (
	dialTimeout = 5 * time.Second
	// answerTimeout is how long the daemon may take to answer, besides the time that
	// it waits for messages.
	answerTimeout = 30 * time.Second
)

func newAPI(e *endpoint, token capability.Token) *api {
	dialer := net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{
		TLSClientConfig: e.tls,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if e.socket != "" {
				network, address = "unix", e.socket
			}
			return dialer.DialContext(ctx, network, address)
		},
	}
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a token goes to one daemon only
	return &api{endpoint: e, token: token, client: &http.Client{Transport: transport, CheckRedirect: refuse}}
}

func (a *api) close() { a.client.CloseIdleConnections() }

// An apiRequest is a request to the daemon.
type apiRequest struct {
	method string // empty: POST
	path   string
	body   any
	// creates says that the request may create the queue that it names.
	creates bool
	// waits is how long the daemon may wait before it answers.
	waits time.Duration
}

// call sends a request, and decodes the answer unless it is nil.
func (a *api) call(ctx context.Context, q apiRequest, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout+q.waits)
	defer cancel()
	response, err := a.post(ctx, &q)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if answer == nil {
		_, err = io.Copy(io.Discard, response.Body)
	} else {
		err = json.NewDecoder(response.Body).Decode(answer)
	}
	if err != nil {
		return a.broken(ctx, err)
	}
	return nil
}

// post sends a request and returns the answer if its status is 200.
func (a *api) post(ctx context.Context, q *apiRequest) (*http.Response, error) {
	body := []byte("{}")
	if q.method == http.MethodGet {
		body = nil
	}
	if q.body != nil {
		var err error
		if body, err = json.Marshal(q.body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, cmp.Or(q.method, http.MethodPost), a.endpoint.base+q.path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+a.token.Reveal())
	request.Header.Set("Content-Type", "application/json")
	if a.tenant != "" {
		request.Header.Set("X-Mailbox-Tenant", a.tenant)
	}
	if !q.creates {
		request.Header.Set("X-Mailbox-Existing", "true")
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, a.unreachable(ctx, err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20)) // truncated JSON fails to parse
	var refusal refusalBody
	if err := json.Unmarshal(text, &refusal); err != nil || refusal.Code == "" {
		return nil, notMailboxd(a.endpoint, response.StatusCode, text)
	}
	return nil, refusal.error()
}

// notMailboxd explains an answer that is not from the daemon's HTTP API.
func notMailboxd(e *endpoint, status int, text []byte) error {
	f := &failure{
		exit: exitUnreachable, code: "not_mailboxd",
		sentence: fmt.Sprintf("the server at %s is not mailboxd (HTTP status %d)", e.shown, status),
		advice:   "say where the daemon is with --addr",
	}
	if bytes.Contains(text, []byte("This port is for OAP/1 frames")) {
		f.sentence = fmt.Sprintf("%s is for OAP/1 frames, and not for HTTP", e.shown)
		f.advice = "give it as --oap-addr, and as --addr that of listen.http (port 9410 by default)"
	}
	if status == http.StatusBadRequest && bytes.Contains(text, []byte("HTTP request to an HTTPS server")) {
		f.sentence = fmt.Sprintf("%s requires TLS", e.shown)
		f.advice = "write --addr https://" + e.host
	}
	return f
}

// A page is the result of get.
type page struct {
	status int
	header http.Header
	tls    *tls.ConnectionState // nil without TLS
	body   []byte
}

// get fetches a page that needs no token. It sends a token that is not zero, for which
// the daemon answers in more detail.
func (a *api) get(ctx context.Context, path string, token capability.Token) (*page, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.endpoint.base+path, nil)
	if err != nil {
		return nil, err
	}
	if !token.IsZero() {
		request.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, a.unreachable(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return &page{response.StatusCode, response.Header, response.TLS, body}, err
}

// refusalBody is an error of the daemon in JSON.
type refusalBody struct {
	Code         string  `json:"code"`
	Message      string  `json:"message"`
	Kind         string  `json:"kind"`
	Reason       string  `json:"reason"`
	Op           string  `json:"op"`
	Queue        string  `json:"topic"`
	MessageID    string  `json:"msg_id"`
	Field        string  `json:"field"`
	Detail       string  `json:"detail"`
	RetryAfterMS float64 `json:"retry_after_ms"`
	Done         int     `json:"done"`
}

// error returns the driver.Error that the daemon reported.
func (b *refusalBody) error() error {
	e := &driver.Error{
		Code: driver.ErrUnavailable, Op: b.Op, Queue: b.Queue, MessageID: b.MessageID, Field: b.Field, Detail: b.Detail,
		RetryAfter: time.Duration(b.RetryAfterMS * float64(time.Millisecond)),
	}
	if code, ok := kinds[b.Kind]; ok {
		e.Code = code
	}
	if b.Reason != "" {
		e.Err = capability.Reason(b.Reason)
	}
	if b.Done > 0 {
		return &partial{done: b.Done, err: e}
	}
	return e
}

// A partial is an error after some of the work was done.
type partial struct {
	done int
	err  error
}

func (p *partial) Error() string { return fmt.Sprintf("after %d: %v", p.done, p.err) }
func (p *partial) Unwrap() error { return p.err }

// unreachable explains why no answer came.
func (a *api) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return notAnswering(a.endpoint, err)
}

func notAnswering(e *endpoint, err error) *failure {
	f := &failure{
		exit: exitUnreachable, code: "unreachable", cause: err,
		sentence: fmt.Sprintf("no daemon answers at %s (%s)", e.shown, rootCause(err)),
		advice:   "start one with mailboxd, or say where it is with --addr or MAILBOX_ADDR",
	}
	f.explainTLS(e.shown, err)
	return f
}

// explainTLS changes a failure to reach address to name the problem with TLS, if
// that is the cause.
func (f *failure) explainTLS(address string, err error) {
	host, _, splitErr := net.SplitHostPort(strings.TrimPrefix(address, "https://"))
	if splitErr != nil {
		host = address
	}
	unknown, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, isHost := errors.AsType[x509.HostnameError](err)
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	_, isRecord := errors.AsType[tls.RecordHeaderError](err)
	alert, isAlert := errors.AsType[tls.AlertError](err)
	switch {
	case isRecord || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		f.sentence, f.advice = fmt.Sprintf("%s does not speak TLS", address), "write its address without https://, if the network is trusted, or give the daemon a certificate"
	case isUnknown:
		by := ""
		if unknown.Cert != nil {
			by = fmt.Sprintf(" (%s)", printable([]byte(unknown.Cert.Issuer.String()), 60))
		}
		f.sentence, f.advice = fmt.Sprintf("the certificate of %s is from an authority that is not trusted here%s", address, by), "name the file of the authority's certificate with --ca or MAILBOX_CA"
	case isHost:
		f.sentence, f.advice = fmt.Sprintf("the certificate of %s is not for %s (%s)", address, host, rootCause(err)), "use a name that it is for, or give the daemon a certificate for this one"
	case isInvalid && invalid.Reason == x509.Expired:
		f.sentence, f.advice = fmt.Sprintf("the certificate of %s has expired or is not valid yet (%s)", address, rootCause(err)), "renew the daemon's certificate, and compare the clocks of both machines"
	case isAlert && strings.Contains(alert.Error(), "certificate"):
		f.sentence, f.advice = fmt.Sprintf("%s does not accept the certificate of this client (%s)", address, alert.Error()), "give one that the daemon trusts, with --cert and --key-file"
	}
}

func (a *api) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &driver.Error{Code: driver.ErrUnavailable, Detail: "the answer was cut off", Err: err}
}

// maxLine bounds a line of a list: the longest message, in base64.
const maxLine = 4 << 20

// list requests a list and yields its elements as they arrive. An error ends it.
func list[T any](ctx context.Context, a *api, q apiRequest) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		response, err := a.post(ctx, &q)
		if err != nil {
			yield(none, err)
			return
		}
		defer func() { _ = response.Body.Close() }()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(make([]byte, 64<<10), maxLine)
		for lines.Scan() {
			var line struct {
				Error *refusalBody `json:"error"`
			}
			element := none
			err := json.Unmarshal(lines.Bytes(), &line)
			switch {
			case err == nil && line.Error != nil:
				err = line.Error.error()
			case err == nil:
				err = json.Unmarshal(lines.Bytes(), &element)
			}
			if !yield(element, err) || err != nil {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(none, a.broken(ctx, err))
		}
	}
}
