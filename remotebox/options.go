package remotebox

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
)

// Options configure a Backend. The zero value, and nil, mean the defaults.
type Options struct {
	// TLS is how to speak to the daemon; nil means without encryption, which is
	// refused for addresses that are not on this machine, because the token
	// would be there for everybody to read.
	TLS *tls.Config
	// AllowPlaintext allows it all the same.
	AllowPlaintext bool
	// Patience is how long an operation waits for a connection, and goes on
	// trying when it loses one, before it fails with ErrUnavailable. 0 means
	// 5 s; less than 0 means one attempt to connect, and none to repeat. It
	// never waits longer than its context.
	Patience time.Duration
	// Verify has messages that are received verified. Nil takes them as they come:
	// the daemon has verified them.
	Verify *Verification
	// Worker is what the daemon's lists of workers call the receivers of this Backend: at most 128
	// bytes of printable text. Empty means the name of the program, the host and the process id, as
	// in billing@host-7:4312.
	Worker string
	// Dial makes connections instead of the network. The address is one of those
	// that the Backend was made with.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Default times.
const (
	defaultPatience = 5 * time.Second
	// handshakeTime is how long connecting may take.
	handshakeTime = 10 * time.Second
	// graceTime is how long an operation that is over waits for what it has
	// under way, before it gives up on knowing.
	graceTime = 250 * time.Millisecond
)

// How dead peers are noticed when there is nothing to say.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// unixScheme begins addresses of unix sockets.
const unixScheme = "unix:"

// dial connects to an address.
func (o *Options) dial(ctx context.Context, address string) (net.Conn, error) {
	if o.Dial != nil {
		return o.Dial(ctx, address)
	}
	network, target := "tcp", address
	if path, ok := strings.CutPrefix(address, unixScheme); ok {
		network, target = "unix", path
	}
	dialer := net.Dialer{Timeout: handshakeTime, KeepAliveConfig: keepAlive}
	if o.TLS == nil {
		return dialer.DialContext(ctx, network, target)
	}
	secure := tls.Dialer{NetDialer: &dialer, Config: o.TLS}
	return secure.DialContext(ctx, network, target)
}

// check returns ErrInvalid if the options and an address do not go together.
func (o *Options) check(address string) error {
	if len(o.Worker) > maxWorkerBytes || strings.IndexFunc(o.Worker, unprintable) >= 0 {
		return &driver.Error{
			Code: driver.ErrInvalid, Op: "connect", Field: "Worker",
			Detail: fmt.Sprintf("invalid value %.80q; want at most %d bytes of printable text", o.Worker, maxWorkerBytes),
		}
	}
	invalid := func(detail string) error {
		return &driver.Error{Code: driver.ErrInvalid, Op: "connect", Field: "address", Detail: detail}
	}
	if o.Dial != nil || strings.HasPrefix(address, unixScheme) {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return invalid(fmt.Sprintf("invalid value %.80q; want host:port (9411 by default) or unix:/path", address))
	}
	if o.TLS != nil || o.AllowPlaintext || host == "localhost" {
		return nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return nil
	}
	return invalid("is not on this machine, and without TLS everybody on the way can read the token")
}

// maxWorkerBytes bounds the name of a worker.
const maxWorkerBytes = 128

// unprintable reports whether a daemon refuses a character in the name of a worker.
func unprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// worker returns the name that the daemon is told.
func (o *Options) worker() string {
	if o.Worker != "" {
		return o.Worker
	}
	name := filepath.Base(os.Args[0])
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	name = strings.Map(func(r rune) rune {
		if unprintable(r) {
			return '?'
		}
		return r
	}, name)
	process := fmt.Sprintf(":%d", os.Getpid())
	for len(name)+len(process) > maxWorkerBytes {
		_, last := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-last]
	}
	return name + process
}

// decodeToken returns the binary form of a token, which travels.
func decodeToken(token string) ([]byte, error) {
	binary, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return nil, &driver.Error{Code: driver.ErrUnauthenticated, Op: "connect", Field: "token", Detail: "is not the text of a token; copy all of it, as mailbox cap mint printed it"}
	}
	return binary, nil
}
