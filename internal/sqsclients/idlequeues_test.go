package sqsclients_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/server"
)

// Three hundred queues that nobody uses cost less than a megabyte. The daemon runs in
// this process, where its heap can be looked at when all garbage is gone.
func TestIdleQueuesCostNextToNothing(t *testing.T) {
	for _, profile := range []string{server.Micronode, server.Macronode} {
		t.Run(profile, func(t *testing.T) {
			const queues, most = 300, 1 << 20
			create := embed(t, server.Config{Profile: profile, DataDir: t.TempDir(), LogLevel: "error", Listen: "127.0.0.1:0", ListenOAP: server.Off})
			create(0, 20) // what is made once for all queues is there then
			before := liveHeap()
			create(20, 20+queues)
			cost := liveHeap() - before
			t.Logf("%d idle queues: %d KiB, %d bytes each", queues, cost>>10, cost/queues)
			if cost > most {
				t.Errorf("that is more than %d KiB", most>>10)
			}
			if cost < 100*queues {
				t.Error("that cannot be: the figure is of something else")
			}
		})
	}
}

// embed runs a daemon in this process until the test ends. It returns what makes queues
// with the numbers from one to another.
func embed(t *testing.T, config server.Config) (create func(from, to int)) {
	t.Helper()
	daemon, err := server.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-daemon.Started()
	keys := daemon.OperatorToken().Credentials()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := sqs.New(sqs.Options{
		Region: region, BaseEndpoint: aws.String("http://" + daemon.Address(server.HTTP)), HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider(keys.AccessKeyID, keys.SecretAccessKey.Reveal(), keys.SessionToken),
	})
	return func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if _, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(fmt.Sprintf("queue-%d", i))}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// liveHeap is how many bytes of the heap are in use when all garbage is gone.
func liveHeap() int64 {
	for range 3 { // what has a finaliser, or is in a pool, goes late
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
