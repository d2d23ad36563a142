package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
)

// Limits of a Schedule. Attributes have those of a message.
const (
	maxNameBytes = driver.MaxScheduleNameBytes
	minEvery     = time.Second
	maxEvery     = 366 * 24 * time.Hour
	maxBodyBytes = 64 << 10
)

// A CatchUp says what becomes of due times at which nothing could be sent.
type CatchUp string

// The rules.
const (
	// CatchUpOne sends one message for the latest of them. It is the default: the empty
	// CatchUp means the same.
	CatchUpOne CatchUp = "one"
	// CatchUpAll sends a message for each.
	CatchUpAll CatchUp = "all"
	// CatchUpNone sends nothing for a due time that is more than a minute ago.
	CatchUpNone CatchUp = "none"
)

// lateLimit is how late a due time may be sent with CatchUpNone.
const lateLimit = time.Minute

// A Schedule says what is sent to which queue, and when. Exactly one of Cron and Every
// is set.
type Schedule struct {
	// Name identifies the schedule.
	Name string `json:"name"`
	// Cron is a cron expression; see the package documentation.
	Cron string `json:"cron,omitempty"`
	// Every is an interval of whole milliseconds. The schedule is due at Created + Every,
	// Created + 2 × Every, and so on.
	Every time.Duration `json:"-"`
	// Zone is the name of the time zone of Cron, as in "Europe/Berlin". Empty means UTC.
	Zone string `json:"zone,omitempty"`
	// Queue is the name of the queue that messages are sent to.
	Queue string `json:"queue"`
	// Body and Attributes are those of each message.
	Body       []byte            `json:"body,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	CatchUp    CatchUp           `json:"catch_up,omitempty"`
	// Paused: nothing is sent, and due times that pass are not caught up.
	Paused bool `json:"paused,omitempty"`
	// Created is when the schedule was made, to the millisecond. It is not due at or before
	// this time.
	Created time.Time `json:"created"`
}

// encoded is the JSON form of a Schedule.
type encoded struct {
	plain
	EveryMs int64 `json:"every_ms,omitempty"`
}

type plain Schedule

// MarshalJSON returns the form that Parse reads.
func (s Schedule) MarshalJSON() ([]byte, error) {
	return json.Marshal(encoded{plain(s), s.Every.Milliseconds()})
}

// UnmarshalJSON is Parse for package encoding/json.
func (s *Schedule) UnmarshalJSON(data []byte) error {
	parsed, err := Parse(data)
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// Parse reads the JSON form of a schedule and checks it. It refuses unknown fields and
// anything after the schedule. Codes: ErrInvalid.
func Parse(data []byte) (Schedule, error) {
	var in encoded
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return Schedule{}, &driver.Error{Code: driver.ErrInvalid, Op: opSchedule, Err: err}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Schedule{}, invalid("", "there is more after the schedule")
	}
	s := Schedule(in.plain)
	if in.EveryMs < 0 || in.EveryMs > maxEvery.Milliseconds() {
		return Schedule{}, invalid("every_ms", fmt.Sprintf("%d is not within 1000 to %d", in.EveryMs, maxEvery.Milliseconds()))
	}
	s.Every = time.Duration(in.EveryMs) * time.Millisecond
	s.Created = s.Created.UTC()
	if _, err := s.Compile(); err != nil {
		return Schedule{}, err
	}
	return s, nil
}

// opSchedule is the operation in errors.
const opSchedule = "schedule"

func invalid(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: opSchedule, Field: field, Detail: detail}
}

// Compile checks the schedule and returns its calendar. Codes: ErrInvalid, with the field
// that is wrong.
func (s *Schedule) Compile() (*Calendar, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	c := &Calendar{every: s.Every, created: s.Created.Truncate(time.Millisecond), catchUp: s.CatchUp, paused: s.Paused}
	if s.Cron == "" {
		return c, nil
	}
	var err error
	if c.cron, err = parseCron(s.Cron); err != nil {
		return nil, invalid("Cron", err.Error())
	}
	if c.zone, err = loadZone(s.Zone); err != nil {
		return nil, invalid("Zone", err.Error())
	}
	if c.Next(s.Created).IsZero() {
		return nil, invalid("Cron", fmt.Sprintf("%q is never due", s.Cron))
	}
	return c, nil
}

// loadZone refuses "Local", which means something else on every machine.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New(`invalid value "Local"; want a name such as "Europe/Berlin"`)
	}
	return time.LoadLocation(name)
}

// check checks all fields but the expression and the zone.
func (s *Schedule) check() error {
	switch {
	case s.Name == "" || len(s.Name) > maxNameBytes:
		return invalid("Name", fmt.Sprintf("%d bytes; want 1 to %d", len(s.Name), maxNameBytes))
	case !printable(s.Name):
		return invalid("Name", fmt.Sprintf("%q has characters that cannot be printed", s.Name))
	case (s.Cron == "") == (s.Every == 0):
		return invalid("Cron", "want either a cron expression or an interval")
	case s.Every != 0 && (s.Every < minEvery || s.Every > maxEvery):
		return invalid("Every", fmt.Sprintf("%v is not within %v to %v", s.Every, minEvery, maxEvery))
	case s.Every%time.Millisecond != 0:
		return invalid("Every", fmt.Sprintf("%v is not a whole number of milliseconds", s.Every))
	case s.Every != 0 && s.Zone != "":
		return invalid("Zone", "is for Cron; an interval has none")
	case s.Created.Year() < 1970 || s.Created.Year() > 9000:
		return invalid("Created", fmt.Sprintf("%v is not within the years 1970 to 9000", s.Created))
	case len(s.Body) > maxBodyBytes:
		return invalid("Body", fmt.Sprintf("%d bytes are over the limit of %d", len(s.Body), maxBodyBytes))
	}
	switch s.CatchUp {
	case "", CatchUpNone, CatchUpOne, CatchUpAll:
	default:
		return invalid("CatchUp", fmt.Sprintf("invalid value %q; want none, one or all", s.CatchUp))
	}
	if err := driver.CheckName(s.Queue); err != nil {
		return &driver.Error{Code: driver.ErrInvalid, Op: opSchedule, Field: "Queue", Err: err}
	}
	message := s.message(s.Created)
	return message.Check(&driver.Traits{
		MaxBodyBytes: maxBodyBytes, MaxAttributes: driver.MaxAttributes, MaxAttributeBytes: driver.MaxAttributeBytes,
	})
}

// message returns the message of a due time, or one without if it is zero.
func (s *Schedule) message(due time.Time) driver.DueMessage {
	attributes := make(map[string]string, len(s.Attributes)+2)
	maps.Copy(attributes, s.Attributes)
	attributes[driver.AttributeScheduleName] = s.Name
	if !due.IsZero() {
		attributes[driver.AttributeScheduleDue] = due.UTC().Format(time.RFC3339Nano)
	}
	return driver.DueMessage{Due: due, Outgoing: driver.Outgoing{Body: s.Body, Attributes: attributes}}
}

func printable(text string) bool {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(text)
}

// Equal reports whether two schedules are the same.
func (s *Schedule) Equal(other *Schedule) bool {
	return s.Name == other.Name && s.Cron == other.Cron && s.Every == other.Every && s.Zone == other.Zone &&
		s.Queue == other.Queue && bytes.Equal(s.Body, other.Body) && maps.Equal(s.Attributes, other.Attributes) &&
		s.CatchUp == other.CatchUp && s.Paused == other.Paused && s.Created.Equal(other.Created)
}
