package pgbox

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/opening"
)

// Options configure a Backend. The zero value, and nil, mean the defaults.
type Options struct {
	// Schema is where tables and functions are; empty means "mailbox".
	Schema string
	// Migrate makes Open call Migrate first. It needs the right to create only if the schema
	// is not up to date.
	Migrate bool
	// Defaults is the configuration of queues that are opened without having been
	// configured, and the default of settings that a new queue's configuration leaves unset.
	Defaults driver.Config
	// MaxBodyBytes bounds bodies; 0 means driver.DefaultMaxBodyBytes.
	MaxBodyBytes int
	// PollOnly turns LISTEN off, which needs a connection of its own and cannot pass through
	// pgbouncer in transaction mode. Receives that wait then ask the server every second.
	PollOnly bool
	// RetryFor is how long an operation is repeated that has certainly not been performed,
	// for lack of a connection; then it is ErrUnavailable. 0 means ten seconds.
	RetryFor time.Duration
	// Logger gets warnings and errors. Nil means none are logged.
	Logger *slog.Logger
}

const (
	defaultSchema = "mailbox"
	// maxSchemaBytes is the longest identifier of PostgreSQL.
	maxSchemaBytes = 63
)

// withDefaults returns the options with defaults filled in, or ErrInvalid for those that no
// backend can honour.
func (o *Options) withDefaults() (Options, error) {
	var filled Options
	if o != nil {
		filled = *o
	}
	if filled.Schema == "" {
		filled.Schema = defaultSchema
	}
	if filled.MaxBodyBytes == 0 {
		filled.MaxBodyBytes = driver.DefaultMaxBodyBytes
	}
	if filled.RetryFor == 0 {
		filled.RetryFor = 10 * time.Second
	}
	if filled.Logger == nil {
		filled.Logger = slog.New(slog.DiscardHandler)
	}
	for field, value := range map[string]int64{"MaxBodyBytes": int64(filled.MaxBodyBytes), "RetryFor": int64(filled.RetryFor)} {
		if err := opening.CheckOption(field, value); err != nil {
			return filled, err
		}
	}
	if err := checkSchema(filled.Schema); err != nil {
		return filled, err
	}
	return filled, filled.Defaults.Validate()
}

// checkSchema refuses names that would need quoting.
func checkSchema(name string) error {
	valid := len(name) <= maxSchemaBytes
	for i, c := range name {
		valid = valid && (c == '_' || c >= 'a' && c <= 'z' || i > 0 && c >= '0' && c <= '9')
	}
	if !valid {
		return &driver.Error{
			Code: driver.ErrInvalid, Op: "open", Field: "Schema",
			Detail: fmt.Sprintf("%.80q; want at most %d of a to z, 0 to 9 and _, not beginning with a digit", name, maxSchemaBytes),
		}
	}
	return nil
}
