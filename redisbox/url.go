package redisbox

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/opening"
	"github.com/mailboxmq/mailbox/internal/tlsconfig"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// The schemes of addresses in Redis.
const (
	urlScheme         = "redis"
	urlSchemeSecure   = "rediss"
	urlSchemeSentinel = "redis+sentinel"
	urlSchemeCluster  = "redis+cluster"
)

var schemes = []string{urlScheme, urlSchemeSecure, urlSchemeSentinel, urlSchemeCluster}

const (
	defaultPort         = "6379"
	defaultSentinelPort = "26379"
)

func init() { driver.RegisterURL(readURL, schemes...) }

// readURL reads a URL of mailbox.OpenURL.
func readURL(address *url.URL) (driver.URLTarget, error) {
	parameters, err := opening.ReadParameters(address, "db", "prefix", "replicas", "tls", "ca", "master_set", "addr...")
	if err != nil {
		return driver.URLTarget{}, err
	}
	plain := *address
	plain.User, plain.RawQuery = nil, ""
	if parameters.Has("db") {
		plain.RawQuery = url.Values{"db": parameters["db"]}.Encode()
	}
	server, name, err := readAddress(&plain)
	switch {
	case err != nil:
	case name == "":
		err = addressError("queue", "is missing; want redis://HOST:PORT/QUEUE")
	default:
		err = driver.CheckName(name)
	}
	if err != nil {
		return driver.URLTarget{}, err
	}
	option, err := clientOption(address, parameters)
	if err != nil {
		return driver.URLTarget{}, err
	}
	replicas, err := strconv.ParseUint(cmp.Or(parameters.Get("replicas"), "0"), 10, 8)
	if err != nil {
		return driver.URLTarget{}, addressError("query", "parameter replicas: want how many replicas of a primary confirm, 0 to 255")
	}
	parameters.Del("db") // is part of server
	key := strings.Join([]string{server, option.Username, option.Password, parameters.Encode()}, "\x00")
	return driver.URLTarget{Queue: name, Key: key, Open: func(ctx context.Context) (driver.Backend, error) {
		return openURL(ctx, address.Scheme, option, &Options{Prefix: parameters.Get("prefix"), Replicas: int(replicas)})
	}}, nil
}

// clientOption returns the options of the client that a URL asks for.
func clientOption(address *url.URL, parameters url.Values) (rueidis.ClientOption, error) {
	fail := func(field, detail string) (rueidis.ClientOption, error) {
		return rueidis.ClientOption{}, addressError(field, detail)
	}
	isSentinel, isGroup := address.Scheme == urlSchemeSentinel, address.Scheme == urlSchemeSentinel || address.Scheme == urlSchemeCluster
	secure := address.Scheme == urlSchemeSecure || parameters.Get("tls") == "true"
	further := parameters["addr"] // of the same cluster, or the other sentinels
	switch tls := parameters.Get("tls"); {
	case tls != "" && tls != "true" && tls != "false":
		return fail("query", "parameter tls: want true or false")
	case tls != "" && !isGroup:
		return fail("query", "parameter tls is for redis+sentinel and redis+cluster; want rediss://HOST:PORT/QUEUE")
	case parameters.Get("ca") != "" && !secure:
		return fail("query", "parameter ca is for TLS; want rediss://HOST:PORT/QUEUE, or tls=true with redis+sentinel and redis+cluster")
	case isSentinel && parameters.Get("master_set") == "":
		return fail("query", "parameter master_set is missing; want redis+sentinel://HOST:PORT/QUEUE?master_set=NAME")
	case !isSentinel && parameters.Get("master_set") != "":
		return fail("query", "parameter master_set is for sentinels; want redis+sentinel://HOST:PORT/QUEUE?master_set=NAME")
	case len(further) > 0 && !isGroup:
		return fail("query", "parameter addr is for redis+sentinel and redis+cluster")
	}
	database, err := strconv.Atoi(cmp.Or(parameters.Get("db"), "0"))
	if err != nil || database > 0 && address.Scheme == urlSchemeCluster {
		return fail("db", "a cluster has database 0 only")
	}
	option := rueidis.ClientOption{AlwaysPipelining: true, SelectDB: database, Username: address.User.Username()}
	option.Password, _ = address.User.Password()
	option.InitAddress = append(option.InitAddress, net.JoinHostPort(address.Hostname(), portOf(address)))
	for _, node := range further {
		if _, _, err := net.SplitHostPort(node); err != nil {
			return fail("addr", "is not HOST:PORT")
		}
		option.InitAddress = append(option.InitAddress, node)
	}
	if secure {
		if option.TLSConfig, err = tlsconfig.Trusting(parameters.Get("ca")); err != nil {
			return rueidis.ClientOption{}, err
		}
	}
	option.Sentinel.MasterSet, option.Sentinel.TLSConfig = parameters.Get("master_set"), option.TLSConfig
	return option, nil
}

// An ownedBackend is a backend with its client.
type ownedBackend struct{ *Backend }

func (b ownedBackend) Close() error {
	err := b.Backend.Close()
	b.server.Client.Close()
	return err
}

// openURL connects, and opens the backend. Cancelling ctx ends the attempt to connect.
func openURL(ctx context.Context, scheme string, option rueidis.ClientOption, options *Options) (driver.Backend, error) {
	var connected atomic.Bool
	option.DialCtxFn = func(dialing context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		if !connected.Load() {
			var cancel context.CancelFunc
			dialing, cancel = context.WithCancel(dialing)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
		}
		var conn net.Conn
		var err error
		if config == nil {
			conn, err = dialer.DialContext(dialing, "tcp", address)
		} else {
			conn, err = (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(dialing, "tcp", address)
		}
		if err == nil && !connected.Load() {
			context.AfterFunc(ctx, func() { // NewClient waits for the server's greeting without a context
				if !connected.Load() {
					_ = conn.Close()
				}
			})
		}
		return conn, err
	}
	client, err := rueidis.NewClient(option)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			client.Close()
		}
		return nil, ctx.Err()
	case err != nil:
		return nil, connectError(err)
	case scheme == urlSchemeCluster && client.Mode() != rueidis.ClientModeCluster:
		client.Close()
		return nil, addressError("scheme", "the server is not a cluster; want redis://HOST:PORT/QUEUE")
	}
	connected.Store(true)
	backend, err := Open(ctx, client, options)
	if err != nil {
		client.Close()
		return nil, err
	}
	return ownedBackend{backend}, nil
}

// connectError says what to check when no connection can be made.
func connectError(err error) error {
	err = shard.AsDriverError(err)
	if e, ok := err.(*driver.Error); ok && e.Code == driver.ErrUnavailable && e.Detail == "" {
		e.Field, e.Detail = "host", "cannot connect to Redis; check that it runs, HOST:PORT, and whether it wants TLS (rediss)"
	}
	return err
}

// URLOpener returns a registry.Scheme: a function, safe for concurrent use, that opens
// the queue that an address like redis://cache.local:6379/orders?db=0 names. Addresses
// come from clients, so they lead only to the given servers, through backends that are
// open, with the credentials of their clients. The caller closes the backends.
//
// The schemes are redis, rediss, redis+sentinel and redis+cluster. The backend that was
// given for an address decides where it leads; the scheme is part of the name. The port
// is 6379, or 26379 with redis+sentinel, unless the address has another, and the database
// is 0 unless it has a parameter db. An address with a user, a password or another
// parameter is refused. The function blocks as OpenQueue does. Its codes are ErrInvalid,
// ErrForbidden (the address names another server), and those of OpenQueue.
//
// The servers are given by address, like redis://cache.local:6379 or
// redis://cache.local?db=2. URLOpener does no I/O. Codes: ErrInvalid, ErrConflict (a server
// is there twice).
func URLOpener(servers map[string]*Backend) (func(ctx context.Context, address *url.URL) (driver.Queue, error), error) {
	byAddress := make(map[string]*Backend, len(servers)) // in canonical form
	for address, backend := range servers {
		parsed, err := url.Parse(address)
		if err != nil {
			return nil, addressError("address", "is not a valid URL") // the parser's error may repeat a password
		}
		server, name, err := readAddress(parsed)
		switch {
		case err != nil:
			return nil, err
		case name != "":
			return nil, addressError("address", "names a queue; want only the server, like redis://HOST:PORT")
		case byAddress[server] != nil:
			return nil, &driver.Error{Code: driver.ErrConflict, Op: "open", Field: "address", Detail: server + " is there twice"}
		}
		byAddress[server] = backend
	}
	return func(ctx context.Context, address *url.URL) (driver.Queue, error) {
		server, name, err := readAddress(address)
		if err != nil {
			return nil, err
		}
		backend := byAddress[server]
		if backend == nil {
			return nil, &driver.Error{Code: driver.ErrForbidden, Op: "open", Field: "host", Detail: "is not a server that may be used"}
		}
		return backend.OpenQueue(ctx, name)
	}, nil
}

func addressError(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: detail}
}

// readAddress returns the server of an address in its canonical form, and the name of
// the queue. It refuses parts that an address of these schemes cannot have.
func readAddress(address *url.URL) (server, name string, err error) {
	parameters, err := url.ParseQuery(address.RawQuery)
	database := "0"
	if given := parameters["db"]; len(given) == 1 {
		database = given[0]
		delete(parameters, "db")
	}
	number, notNumber := strconv.ParseUint(database, 10, 16)
	switch {
	case !slices.Contains(schemes, address.Scheme):
		err = addressError("scheme", fmt.Sprintf("%q is unknown; want %s", address.Scheme, strings.Join(schemes, ", ")))
	case address.Opaque != "" || address.Hostname() == "":
		err = addressError("host", "is missing; want redis://HOST:PORT/QUEUE")
	case address.User != nil:
		err = addressError("user", "is not allowed in an address; set it on the server's client")
	case address.Fragment != "":
		err = addressError("fragment", "is not allowed in an address; write # in a name as %23")
	case err != nil || len(parameters) > 0:
		err = addressError("query", "only the parameter db is allowed; write ? in a name as %3F")
	case notNumber != nil:
		err = addressError("db", fmt.Sprintf("%q is not the number of a database", database))
	}
	if err != nil {
		return "", "", err
	}
	server = address.Scheme + "://" + net.JoinHostPort(strings.ToLower(address.Hostname()), portOf(address)) + "?db=" + strconv.FormatUint(number, 10)
	return server, strings.TrimPrefix(address.Path, "/"), nil
}

// portOf returns the port of an address, or that of its scheme.
func portOf(address *url.URL) string {
	if address.Port() == "" && address.Scheme == urlSchemeSentinel {
		return defaultSentinelPort
	}
	return cmp.Or(address.Port(), defaultPort)
}
