// Package keda_test runs KEDA's own scalers with the examples of this folder against a daemon. It is
// a module of its own so that Mailbox does not depend on KEDA; see make keda.
package keda_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers"
	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
	"gopkg.in/yaml.v3"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/mailboxtest/daemontest"
	"github.com/mailboxmq/mailbox/remotebox"
)

// An example is what a file says of its trigger, and which keys of a Secret it reads.
type example struct {
	trigger  map[string]string
	triggers string            // the type
	secrets  map[string]string // by parameter
}

func read(t *testing.T, file, daemon string) (e example) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documents := yaml.NewDecoder(strings.NewReader(strings.ReplaceAll(string(text), "http://orders:9410", daemon)))
	for {
		var document struct {
			Spec struct {
				SecretTargetRef []struct{ Parameter, Key string } `yaml:"secretTargetRef"`
				Triggers        []struct {
					Type     string
					Metadata map[string]string
				}
			}
		}
		if err := documents.Decode(&document); errors.Is(err, io.EOF) {
			return e
		} else if err != nil {
			t.Fatal(err)
		}
		if e.secrets == nil {
			e.secrets = make(map[string]string)
		}
		for _, ref := range document.Spec.SecretTargetRef {
			e.secrets[ref.Parameter] = ref.Key
		}
		for _, trigger := range document.Spec.Triggers {
			e.triggers, e.trigger = trigger.Type, trigger.Metadata
		}
	}
}

// TestKEDAReadsBacklog: both examples tell KEDA how many messages there are, with a token that
// allows nothing but stats, and that an empty queue needs no workers.
func TestKEDAReadsBacklog(t *testing.T) {
	daemon := daemontest.Start(t)
	all, err := capability.Parse(daemon.Token)
	if err != nil {
		t.Fatal(err)
	}
	token, err := all.Narrow(capability.Operations(capability.OpStats), capability.Queues(capability.Queue("orders")))
	if err != nil {
		t.Fatal(err)
	}
	backend, err := remotebox.Open(t.Context(), []string{daemon.OAP}, daemon.Token, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backend.Close() })
	queue, err := backend.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	aws := macaroon.CredentialsOf(token.RevealBinary(nil))
	secret := map[string]string{"token": token.Reveal(), "key": aws.AccessKeyID, "secret": aws.SecretAccessKey.Reveal(), "session": aws.SessionToken}
	for _, file := range []string{"metrics-api.yaml", "aws-sqs-queue.yaml"} {
		e := read(t, file, daemon.HTTP)
		config := &scalersconfig.ScalerConfig{
			TriggerType: e.triggers, TriggerMetadata: e.trigger, AuthParams: make(map[string]string), GlobalHTTPTimeout: 10 * time.Second,
			ScalableObjectName: "workers", ScalableObjectNamespace: "default", ScalableObjectType: "ScaledObject", TriggerUniqueKey: file,
		}
		for parameter, key := range e.secrets {
			config.AuthParams[parameter] = secret[key]
		}
		var scaler scalers.Scaler
		if e.triggers == "metrics-api" {
			scaler, err = scalers.NewMetricsAPIScaler(config, nil)
		} else {
			scaler, err = scalers.NewAwsSqsQueueScaler(t.Context(), config)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		expect := func(messages int64, active bool) {
			t.Helper()
			values, isActive, err := scaler.GetMetricsAndActivity(t.Context(), "orders")
			if err != nil || len(values) != 1 || values[0].Value.Value() != messages || isActive != active {
				t.Errorf("%s: KEDA reads %v, active %v, %v; want %d, %v", file, values, isActive, err, messages, active)
			}
		}
		for range 70 {
			if _, err := queue.Send(t.Context(), []driver.Outgoing{{Body: []byte("{}")}}); err != nil {
				t.Fatal(err)
			}
		}
		expect(70, true)
		for got := 0; got < 70; {
			deliveries, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range deliveries {
				if err := queue.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
					t.Fatal(err)
				}
			}
			got += len(deliveries)
		}
		expect(0, false)
		if err := scaler.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
