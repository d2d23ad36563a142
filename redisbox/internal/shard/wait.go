package shard

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
func (s *Server) evalAndWait(ctx context.Context, sc *Script, keys, args []string, replicas int) (reply []rueidis.RedisMessage, err error) {
	failure := s.Client.Dedicated(func(client rueidis.DedicatedClient) error {
		for _, load := range []bool{false, true} {
			wait := client.B().Wait().Numreplicas(int64(replicas)).Timeout(s.ReplicaTimeout.Milliseconds()).Build()
			results := client.DoMulti(ctx, Command(client, sc, keys, args, load), wait)
			reply, err = results[0].ToArray()
			if IsNoScript(err) {
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

// Eval runs a script once. With replicas it returns only when that many have
// everything written so far; see evalAndWait.
func (s *Server) Eval(ctx context.Context, sc *Script, keys, args []string, replicas int) ([]rueidis.RedisMessage, error) {
	if err := sc.check(args); err != nil {
		return nil, &driver.Error{Code: driver.ErrInvalid, Err: err}
	}
	if replicas > 0 {
		return s.evalAndWait(ctx, sc, keys, args, replicas)
	}
	reply, err := s.Client.Do(ctx, Command(s.Client, sc, keys, args, false)).ToArray()
	if IsNoScript(err) {
		reply, err = s.Client.Do(ctx, Command(s.Client, sc, keys, args, true)).ToArray()
	}
	return reply, err
}

type builder interface{ B() rueidis.Builder }

// Command returns the command that runs a script, by its hash or, to load it, by its
// text.
func Command(client builder, s *Script, keys, args []string, load bool) rueidis.Completed {
	if s.keys == ofShard {
		keys = keys[:len(KeyNames)]
	}
	if load {
		return client.B().Eval().Script(s.Text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	}
	return client.B().Evalsha().Sha1(s.Sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// IsNoScript reports whether the server does not have a script loaded.
func IsNoScript(err error) bool {
	redisErr, ok := rueidis.IsRedisErr(err)
	return ok && redisErr.IsNoScript()
}
