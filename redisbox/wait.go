package redisbox

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
)

// The WAIT fence: with Options.Replicas a call is confirmed only when that many
// replicas have its writes. A call that too few replicas confirm in time fails with
// ErrUnavailable: it may have happened, and may be lost in a failover.

// evalAndWait runs a script once and waits until the replicas have everything that the
// script, and the calls before it on the server, have written. It uses a dedicated
// connection, because WAIT waits for the writes of the connection it is sent on.
func (s *server) evalAndWait(ctx context.Context, sc *script, keys, args []string, replicas int) (reply []rueidis.RedisMessage, err error) {
	failure := s.client.Dedicated(func(client rueidis.DedicatedClient) error {
		for _, load := range []bool{false, true} {
			wait := client.B().Wait().Numreplicas(int64(replicas)).Timeout(s.replicaTimeout.Milliseconds()).Build()
			results := client.DoMulti(ctx, command(client, sc, keys, args, load), wait)
			reply, err = results[0].ToArray()
			if isNoScript(err) {
				continue
			}
			if err != nil {
				return err
			}
			reached, err := results[1].AsInt64()
			if err == nil && reached < int64(replicas) {
				err = &replicaError{want: replicas, got: int(reached)}
			}
			return err
		}
		return err
	})
	return reply, failure
}

// replicaError says that too few replicas have confirmed.
type replicaError struct{ want, got int }

func (e *replicaError) Error() string {
	return fmt.Sprintf("%d of %d replicas have confirmed", e.got, e.want)
}

// eval runs a script once. With replicas it returns only when that many have
// everything written so far; see evalAndWait.
func (s *server) eval(ctx context.Context, sc *script, keys, args []string, replicas int) ([]rueidis.RedisMessage, error) {
	if err := sc.check(args); err != nil {
		return nil, &driver.Error{Code: driver.ErrInvalid, Err: err}
	}
	if replicas > 0 {
		return s.evalAndWait(ctx, sc, keys, args, replicas)
	}
	reply, err := s.client.Do(ctx, command(s.client, sc, keys, args, false)).ToArray()
	if isNoScript(err) {
		reply, err = s.client.Do(ctx, command(s.client, sc, keys, args, true)).ToArray()
	}
	return reply, err
}

type builder interface{ B() rueidis.Builder }

// command returns the command that runs a script, by its hash or, to load it, by its
// text.
func command(client builder, s *script, keys, args []string, load bool) rueidis.Completed {
	if s.keys == ofShard {
		keys = keys[:len(keyNames)]
	}
	if load {
		return client.B().Eval().Script(s.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	}
	return client.B().Evalsha().Sha1(s.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func isNoScript(err error) bool {
	redisErr, ok := rueidis.IsRedisErr(err)
	return ok && redisErr.IsNoScript()
}
