package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/remotebox"
)

// globalFlags are the flags of every command.
type globalFlags struct {
	addr, oapAddr      string
	tokenFile, dataDir string
	ca, cert, key      string
	plaintext          bool
	json               bool
}

func (g *globalFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&g.addr, "addr", "", "the daemon's HTTP: host:port, https://host:port or unix:/path (MAILBOX_ADDR)")
	flags.StringVar(&g.oapAddr, "oap-addr", "", "the daemon's OAP/1: host:port, or off to use HTTP only (MAILBOX_OAP_ADDR)")
	flags.StringVar(&g.tokenFile, "token-file", "", "file of the token (MAILBOX_TOKEN_FILE, or the token itself in MAILBOX_TOKEN)")
	flags.StringVar(&g.dataDir, "data-dir", "", "data directory of a daemon on this machine (MAILBOXD_DATA_DIR)")
	flags.StringVar(&g.ca, "ca", "", "file of the authorities that the daemon's certificate must be from (MAILBOX_CA)")
	flags.StringVar(&g.cert, "cert", "", "file of a client certificate (MAILBOX_CERT)")
	flags.StringVar(&g.key, "key-file", "", "file of its key (MAILBOX_KEY_FILE)")
	flags.BoolVar(&g.plaintext, "allow-plaintext", false, "send the token in plaintext to another machine")
	flags.BoolVar(&g.json, "json", false, "write JSON: one object, or one on each line for lists")
}

// firstOf returns the flag or else the first variable that is set, and its
// name.
func (s *shell) firstOf(flag, flagName string, variables ...string) (value, source string) {
	if flag != "" {
		return flag, "--" + flagName
	}
	for _, name := range variables {
		if value := s.environ[name]; value != "" {
			return value, name
		}
	}
	return "", ""
}

// dataDirs returns where a daemon on this machine may keep its files, likeliest first.
// It follows the defaults of the daemon.
func (s *shell) dataDirs() []string {
	if dir, _ := s.firstOf(s.global.dataDir, "data-dir", "MAILBOXD_DATA_DIR", "STATE_DIRECTORY"); dir != "" {
		return []string{dir}
	}
	var dirs []string
	if dir := s.environ["XDG_STATE_HOME"]; dir != "" {
		dirs = append(dirs, filepath.Join(dir, "mailboxd"))
	} else if home := s.environ["HOME"]; home != "" && home != "/" {
		dirs = append(dirs, filepath.Join(home, ".local", "state", "mailboxd"))
	}
	return append(dirs, filepath.Join(string(filepath.Separator), "var", "lib", "mailboxd"))
}

// The files in a data directory.
const (
	operatorTokenFile = "operator.token"
	keysFile          = "keys"
)

// A credential is a token and its source.
type credential struct {
	token  capability.Token
	source string // for messages
}

// credential finds the token.
func (s *shell) credential() (credential, error) {
	if s.global.tokenFile == "" && s.environ["MAILBOX_TOKEN"] != "" {
		token, err := capability.Parse(strings.TrimSpace(s.environ["MAILBOX_TOKEN"]))
		if err != nil {
			return credential{}, usageError("MAILBOX_TOKEN does not contain a token; copy all of it, or write it to a file and name that in MAILBOX_TOKEN_FILE")
		}
		return credential{token, "MAILBOX_TOKEN"}, nil
	}
	path, source := s.firstOf(s.global.tokenFile, "token-file", "MAILBOX_TOKEN_FILE", "MAILBOXD_TOKEN_FILE")
	if path != "" {
		token, err := capability.ReadTokenFile(path)
		return credential{token, path}, tokenFileProblem(err, path, source)
	}
	dirs := s.dataDirs()
	for _, dir := range dirs {
		path := filepath.Join(dir, operatorTokenFile)
		token, err := capability.ReadTokenFile(path)
		if errors.Is(err, driver.ErrNotFound) {
			continue
		}
		return credential{token, path}, tokenFileProblem(err, path, "")
	}
	return credential{}, &failure{
		exit: exitToken, code: "no_token",
		sentence: fmt.Sprintf("there is no token: no daemon has written one to %s", strings.Join(dirs, " or ")),
		advice:   "start a daemon with mailboxd, or name a token with --token-file, MAILBOX_TOKEN_FILE or MAILBOX_TOKEN",
	}
}

// tokenFileProblem explains what is wrong with a token file, and what to do.
func tokenFileProblem(err error, path, source string) error {
	if err == nil {
		return nil
	}
	f := &failure{exit: exitToken, code: "token_file", cause: err, advice: "name another file with --token-file"}
	switch {
	case errors.Is(err, driver.ErrNotFound):
		f.sentence = fmt.Sprintf("there is no file %s, which %s names", path, source)
	case errors.Is(err, driver.ErrForbidden):
		f.sentence, f.advice = fmt.Sprintf("users other than its owner can read %s", path), "chmod 600 "+path+", and replace the token if others may have read it"
	case errors.Is(err, driver.ErrIntegrity):
		f.sentence = fmt.Sprintf("%s does not contain a token", path)
	default:
		f.sentence, f.advice = fmt.Sprintf("%s cannot be read", path), "run this as the user of the daemon, or name another file with --token-file"
	}
	return f
}

// A connection is a daemon and the token to use.
type connection struct {
	*endpoint
	credential
	api *api
}

func (s *shell) connect() (*connection, error) {
	e, err := s.endpoint()
	if err != nil {
		return nil, err
	}
	c, err := s.credential()
	if err != nil {
		return nil, err
	}
	return &connection{endpoint: e, credential: c, api: newAPI(e, c.token)}, nil
}

// close closes the idle connections.
func (c *connection) close() { c.api.close() }

// A messageQueue sends, receives and settles messages of one queue. A driver.Queue is one.
type messageQueue interface {
	Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error)
	Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error)
	Ack(ctx context.Context, receipts []driver.Receipt) error
	Nack(ctx context.Context, nacks []driver.Nack) error
	Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error)
	Close() error
}

// A queueOpener opens queues for messages.
type queueOpener struct {
	*connection
	backend *remotebox.Backend // nil over HTTP
}

// queueOpener returns the opener of queues: over OAP/1 if an address is known, else over HTTP.
func (c *connection) queueOpener() *queueOpener {
	m := &queueOpener{connection: c}
	if c.oap != "" {
		m.backend = c.remotebox()
	}
	return m
}

func (c *connection) remotebox() *remotebox.Backend {
	options := &remotebox.Options{AllowPlaintext: true, TLS: c.tls} // endpoint has checked --allow-plaintext
	return remotebox.New([]string{c.oap}, c.token.Reveal(), options)
}

func (m *queueOpener) open(ctx context.Context, queue string) (messageQueue, error) {
	if err := driver.CheckName(queue); err != nil {
		return nil, err
	}
	if m.backend == nil {
		return &httpQueue{api: m.api, name: queue}, nil
	}
	if err := m.checkListening(ctx); err != nil {
		return nil, err
	}
	opened, err := m.backend.OpenQueue(ctx, queue)
	if err != nil {
		return nil, m.explainRefusal(ctx, queue, err)
	}
	return &explainedQueue{opened, m, queue}, nil
}

// explainRefusal finds the reason for which a token was refused: OAP/1 does not report it, and HTTP
// does.
func (m *queueOpener) explainRefusal(ctx context.Context, queue string, err error) error {
	if errors.Is(err, driver.ErrUnavailable) {
		return m.explainUnreachable(ctx, err)
	}
	if !errors.Is(err, driver.ErrUnauthenticated) || capability.ReasonOf(err) != "" {
		return err
	}
	// Every token with an operation on the queue allows this request.
	said := m.api.call(ctx, apiRequest{path: "/v1/traits", body: queueBody{queue}}, nil)
	if capability.ReasonOf(said) != "" {
		return said
	}
	return err
}

// explainUnreachable explains why OAP/1 could not connect: with the error of HTTP, which shows
// whether TLS is required, or that the address is not one for OAP/1.
func (m *queueOpener) explainUnreachable(ctx context.Context, err error) error {
	if strings.Contains(err.Error(), "it speaks HTTP") {
		return &failure{
			exit: exitUnreachable, code: "unreachable", cause: err, sentence: fmt.Sprintf("%s speaks HTTP, and not OAP/1 frames", m.oap),
			advice: "give it as --addr, and as --oap-addr that of listen.oap (port 9411 by default), or off",
		}
	}
	if f, ok := errors.AsType[*failure](m.api.call(ctx, apiRequest{path: "/v1/ping"}, nil)); ok && f.code == "not_mailboxd" {
		return f
	}
	return err
}

// An explainedQueue is a queue over OAP/1 that explains why a token is refused.
type explainedQueue struct {
	messageQueue
	queueOpener *queueOpener
	name        string
}

// Send sends messages.
func (q *explainedQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.messageQueue.Send(ctx, msgs)
	return sent, q.queueOpener.explainRefusal(ctx, q.name, err)
}

// Receive receives messages.
func (q *explainedQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.messageQueue.Receive(ctx, req)
	return got, q.queueOpener.explainRefusal(ctx, q.name, err)
}

// checkListening checks at once whether a server listens for OAP/1: the backend itself
// would retry for a daemon that may be starting.
func (m *queueOpener) checkListening(ctx context.Context) error {
	network, address := "tcp", m.oap
	if path, ok := strings.CutPrefix(m.oap, "unix:"); ok {
		network, address = "unix", path
	}
	var dialer interface {
		DialContext(ctx context.Context, network, address string) (net.Conn, error)
	} = &net.Dialer{Timeout: dialTimeout}
	if m.tls != nil {
		dialer = &tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: m.tls}
	}
	c, err := dialer.DialContext(ctx, network, address)
	if err == nil {
		return c.Close()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f := notAnswering(m.endpoint, err)
	f.sentence = fmt.Sprintf("no daemon answers at %s (%s)", m.oap, rootCause(err))
	f.advice = "start one with mailboxd, or say where it is with --addr and --oap-addr"
	f.explainTLS(m.oap, err)
	return f
}

func (m *queueOpener) close() {
	if m.backend != nil {
		_ = m.backend.Close() // its error does not matter
	}
	m.connection.close()
}
