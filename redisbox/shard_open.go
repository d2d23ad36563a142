package redisbox

import (
	"context"
	"math/rand/v2"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
)

// opened is the answer of open.lua.
type opened struct {
	status      string
	incarnation string
	version     int64
	config      driver.Config
	wall        float64
}

// existing returns the configuration in force, or nil.
func (o *opened) existing() *driver.Config {
	if o.status != "ok" {
		return nil
	}
	return &o.config
}

// look reads the settings of a queue. The status is missing if it does not exist.
func (s *server) look(ctx context.Context, name string) (*opened, error) {
	return s.openShard(ctx, name, 0, "l", "", 0, driver.Config{})
}

// newIncarnation returns the random end of a name that tells a new queue from others
// that were called the same, see open.lua.
func newIncarnation() string { return strconv.FormatUint(rand.Uint64(), 36) }

// openShard calls open.lua.
func (s *server) openShard(ctx context.Context, name string, number int, what, queue string, version int64, config driver.Config) (*opened, error) {
	n := max(config.Shards, 1)
	reply, err := s.try(ctx, openScript, shardKeys(s.prefix, name, number), []string{
		what, queue, strconv.FormatInt(version, 10), strconv.Itoa(n), packConfig(config, n, number), stored(config, number),
	})
	if err != nil {
		return nil, err
	}
	return readOpened(reply)
}

func readOpened(reply []rueidis.RedisMessage) (*opened, error) {
	var state opened
	var err error
	if len(reply) == 0 {
		return nil, unreadableAnswer(nil)
	}
	if state.status, err = reply[0].ToString(); err != nil {
		return nil, unreadableAnswer(err)
	}
	if state.status == "schema" {
		number, err := schemaOf(reply)
		if err != nil {
			return nil, unreadableAnswer(err)
		}
		return nil, newerSchema(number)
	}
	if len(reply) < 5 {
		return &state, nil
	}
	if state.incarnation, err = reply[1].ToString(); err != nil {
		return nil, unreadableAnswer(err)
	}
	if state.version, err = reply[2].AsInt64(); err != nil {
		return nil, unreadableAnswer(err)
	}
	settings, err := reply[3].ToString()
	if err != nil {
		return nil, unreadableAnswer(err)
	}
	if state.config, err = parseStored(settings); err != nil {
		return nil, unreadableAnswer(err)
	}
	wall, err := reply[4].AsInt64()
	if err != nil {
		return nil, unreadableAnswer(err)
	}
	state.wall = float64(wall)
	return &state, nil
}

// deleteShard calls delete.lua.
func (s *server) deleteShard(ctx context.Context, name string, number int, what, incarnation string) error {
	reply, err := s.try(ctx, deleteScript, shardKeys(s.prefix, name, number), []string{what, incarnation})
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
			return unreadableAnswer(err)
		}
		return newerSchema(number)
	}
	return &driver.Error{Code: driver.ErrNotFound, Err: err}
}
