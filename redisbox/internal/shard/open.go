package shard

import (
	"context"
	"math/rand/v2"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
)

// Opened is the answer of open.lua.
type Opened struct {
	Status      string
	Incarnation string
	Version     int64
	Config      driver.Config
	wall        float64
}

// Existing returns the configuration in force, or nil.
func (o *Opened) Existing() *driver.Config {
	if o.Status != "ok" {
		return nil
	}
	return &o.Config
}

// Look reads the settings of a queue. The status is missing if it does not exist.
func (s *Server) Look(ctx context.Context, name string) (*Opened, error) {
	return s.OpenShard(ctx, name, 0, "l", "", 0, driver.Config{})
}

// NewIncarnation returns the random end of a name that tells a new queue from others
// that were called the same, see open.lua.
func NewIncarnation() string { return strconv.FormatUint(rand.Uint64(), 36) }

// OpenShard calls open.lua.
func (s *Server) OpenShard(ctx context.Context, name string, number int, what, queue string, version int64, config driver.Config) (*Opened, error) {
	n := max(config.Shards, 1)
	reply, err := s.try(ctx, openScript, Keys(s.Prefix, name, number), []string{
		what, queue, strconv.FormatInt(version, 10), strconv.Itoa(n), PackConfig(config, n, number), Stored(config, number),
	})
	if err != nil {
		return nil, err
	}
	return readOpened(reply)
}

func readOpened(reply []rueidis.RedisMessage) (*Opened, error) {
	var state Opened
	var err error
	if len(reply) == 0 {
		return nil, UnreadableAnswer(nil)
	}
	if state.Status, err = reply[0].ToString(); err != nil {
		return nil, UnreadableAnswer(err)
	}
	if state.Status == "schema" {
		number, err := schemaOf(reply)
		if err != nil {
			return nil, UnreadableAnswer(err)
		}
		return nil, newerSchema(number)
	}
	if len(reply) < 5 {
		return &state, nil
	}
	if state.Incarnation, err = reply[1].ToString(); err != nil {
		return nil, UnreadableAnswer(err)
	}
	if state.Version, err = reply[2].AsInt64(); err != nil {
		return nil, UnreadableAnswer(err)
	}
	settings, err := reply[3].ToString()
	if err != nil {
		return nil, UnreadableAnswer(err)
	}
	if state.Config, err = parseStored(settings); err != nil {
		return nil, UnreadableAnswer(err)
	}
	wall, err := reply[4].AsInt64()
	if err != nil {
		return nil, UnreadableAnswer(err)
	}
	state.wall = float64(wall)
	return &state, nil
}

// DeleteShard calls delete.lua.
func (s *Server) DeleteShard(ctx context.Context, name string, number int, what, incarnation string) error {
	reply, err := s.try(ctx, deleteScript, Keys(s.Prefix, name, number), []string{what, incarnation})
	if err != nil {
		return err
	}
	status, err := reply[0].ToString()
	switch {
	case err == nil && status == "ok":
		return nil
	case err == nil && status == "schema":
		number, err := schemaOf(reply)
		if err != nil {
			return UnreadableAnswer(err)
		}
		return newerSchema(number)
	}
	return &driver.Error{Code: driver.ErrNotFound, Err: err}
}
