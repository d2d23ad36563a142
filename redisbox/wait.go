package redisbox

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"
)

// The WAIT fence: with Options.Replicas a call is confirmed only when that many
// replicas have its writes. A call that too few replicas confirm in time fails with
// ErrUnavailable: it may have happened, and may be lost in a failover.

// evalAndWait runs a script once and waits until the replicas have everything that the
// script, and the calls before it on the server, have written. It uses a dedicated
// connection, because WAIT waits for the writes of the connection it is sent on.
func (b *Backend) evalAndWait(ctx context.Context, s *script, keys, args []string, replicas int) (reply []rueidis.RedisMessage, err error) {
	failure := b.client.Dedicated(func(client rueidis.DedicatedClient) error {
		for _, load := range []bool{false, true} {
			wait := client.B().Wait().Numreplicas(int64(replicas)).Timeout(b.options.ReplicaTimeout.Milliseconds()).Build()
			results := client.DoMulti(ctx, command(client, s, keys, args, load), wait)
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

// durable returns the options of single calls that replicas must confirm, and that a
// session makes safe to repeat. Batches have the same: see batch.go.
func (b *Backend) durable(sess *session) callOptions {
	return callOptions{session: sess, replicas: b.options.Replicas}
}
