package pgbox

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/opening"
)

// urlSchemes are the schemes of addresses in PostgreSQL. Both mean the same.
var urlSchemes = []string{"postgres", "postgresql"}

func init() { driver.RegisterURL(readURL, urlSchemes...) }

const wantedURL = "want postgres://USER:PASSWORD@HOST:PORT/DATABASE/QUEUE"

// connectionParameters are the parameters of a URL that are passed on to the server's driver.
var connectionParameters = []string{
	"host", "port", "user", "sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs", "connect_timeout", "application_name", "pool_max_conns",
}

// readURL reads a URL of mailbox.OpenURL.
func readURL(address *url.URL) (driver.URLTarget, error) {
	parameters, err := opening.ReadParameters(address, append([]string{"schema", "poll_only"}, connectionParameters...)...)
	if err != nil {
		return driver.URLTarget{}, err
	}
	database, name, _ := strings.Cut(strings.TrimPrefix(address.Path, "/"), "/")
	switch {
	case address.Opaque != "" || address.Hostname() == "" && parameters.Get("host") == "":
		return driver.URLTarget{}, addressError("host", "is missing; "+wantedURL)
	case address.Fragment != "":
		return driver.URLTarget{}, addressError("fragment", "is not allowed; write # in a name as %23")
	case database == "":
		return driver.URLTarget{}, addressError("database", "is missing; "+wantedURL)
	case name == "":
		return driver.URLTarget{}, addressError("queue", "is missing; "+wantedURL)
	}
	if err := driver.CheckName(name); err != nil {
		return driver.URLTarget{}, err
	}
	server := *address
	server.Scheme, server.Path, server.RawPath = urlSchemes[0], "/"+database, ""
	var options Options
	config, err := readServer(&server, &options, wantedURL)
	if err != nil {
		return driver.URLTarget{}, err
	}
	key := strings.Join([]string{server.String(), options.Schema, strconv.FormatBool(options.PollOnly)}, "\x00")
	return driver.URLTarget{Queue: name, Key: key, Open: func(ctx context.Context) (driver.Backend, error) {
		return openPool(ctx, config, &options)
	}}, nil
}

// OpenAddress opens the backend of a URL without the name of a queue, such as
// postgres://HOST:PORT/DATABASE?schema=NAME, with a pool of its own, which Close closes too. It
// migrates the schema. Codes: ErrInvalid, and those of Open.
func OpenAddress(ctx context.Context, address string, options *Options) (driver.Backend, error) {
	config, filled, err := readAddress(address, options)
	if err != nil {
		return nil, err
	}
	return openPool(ctx, config, filled)
}

// readAddress reads the URL of a database, which says more than options.
func readAddress(address string, options *Options) (*pgxpool.Config, *Options, error) {
	const wanted = "want postgres://USER:PASSWORD@HOST:PORT/DATABASE"
	parsed, err := url.Parse(address)
	if err != nil || !slices.Contains(urlSchemes, parsed.Scheme) {
		return nil, nil, addressError("address", "is not a valid URL; "+wanted) // not quoted: it may contain a password
	}
	var filled Options
	if options != nil {
		filled = *options
	}
	config, err := readServer(parsed, &filled, wanted)
	return config, &filled, err
}

// readServer reads the URL of a database. It moves the parameters of this package from the URL
// into options.
func readServer(server *url.URL, options *Options, wanted string) (*pgxpool.Config, error) {
	options.Migrate = true
	parameters := server.Query()
	if schema := parameters.Get("schema"); schema != "" {
		if err := checkSchema(schema); err != nil {
			return nil, err
		}
		options.Schema = schema
	}
	switch parameters.Get("poll_only") {
	case "":
	case "true":
		options.PollOnly = true
	case "false":
		options.PollOnly = false
	default:
		return nil, addressError("query", "parameter poll_only: want true or false")
	}
	parameters.Del("schema")
	parameters.Del("poll_only")
	server.RawQuery = strings.ReplaceAll(parameters.Encode(), "+", "%20") // which is not a space to libpq
	config, err := pgxpool.ParseConfig(server.String())
	if err != nil {
		return nil, addressError("address", "cannot be read; "+wanted+", and parameters as in libpq") // the error repeats the URL
	}
	return config, nil
}

// An ownedBackend is a backend with its pool.
type ownedBackend struct{ *Backend }

func (b ownedBackend) Close() error {
	err := b.Backend.Close()
	b.pool.Close()
	return err
}

// minConns is the least size of a pool of our own: sends, receives and acks are under way at
// the same time.
const minConns = 8

// openPool connects, and opens the backend.
func openPool(ctx context.Context, config *pgxpool.Config, options *Options) (driver.Backend, error) {
	config.MaxConns = max(config.MaxConns, minConns)
	HeedWarnings(config)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, connectError(config, err)
	}
	backend, err := Open(ctx, pool, options)
	switch {
	case err == nil:
		return ownedBackend{backend}, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	default:
		err = connectError(config, err)
	}
	pool.Close()
	return nil, err
}

// connectError says what to check when no connection can be made. The driver's errors contain
// no password.
func connectError(config *pgxpool.Config, err error) error {
	e, ok := err.(*driver.Error)
	if ok && (e.Code != driver.ErrUnavailable || e.Op == "migrate") {
		return err
	}
	where := net.JoinHostPort(config.ConnConfig.Host, fmt.Sprint(config.ConnConfig.Port))
	return &driver.Error{
		Code: driver.ErrUnavailable, Op: "open", Field: "host", Err: err,
		Detail: fmt.Sprintf("cannot connect to PostgreSQL at %s; check that it runs, the user, the password and the database", where),
	}
}

func addressError(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: detail}
}
