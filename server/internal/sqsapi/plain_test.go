package sqsapi_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/membox"
)

// Most tests let the daemon take connections over. These check that the result does not
// depend on it.

func TestSignaturesAreCheckedWithAndWithoutTakeover(t *testing.T) {
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain=%v", plain), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := serve(t, setup{plain: plain})
				token := d.mint("")
				good := macaroon.CredentialsOf(token.RevealBinary(nil))
				c, forger := d.clientOf(good), d.clientWith(good.AccessKeyID, "another secret", good.SessionToken)
				queue := c.create("orders")
				for i := range 3 { // on one connection, one after the other
					c.send(queue, fmt.Sprint(i))
					_, err := forger.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: queue})
					refused(t, "a forged signature", err, "SignatureDoesNotMatch")
					m := c.one(queue)
					if *m.Body != fmt.Sprint(i) {
						t.Errorf("received %q", *m.Body)
					}
					c.delete(queue, m)
				}
				if err := d.revoked.Revoke(t.Context(), revocation.Revocation{Token: token.ID(), At: time.Now()}); err != nil {
					t.Fatal(err)
				}
				_, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: queue})
				refused(t, "a capability that was just revoked", err, "InvalidClientTokenId")
			})
		})
	}
}

func TestTokenExpiresDuringConnection(t *testing.T) {
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain=%v", plain), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := serve(t, setup{plain: plain})
				queue := d.client("").create("orders")
				token, err := d.ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Minute)))
				if err != nil {
					t.Fatal(err)
				}
				c := d.clientOf(macaroon.CredentialsOf(token.RevealBinary(nil)))
				c.send(queue, "x")
				time.Sleep(50 * time.Second)
				c.send(queue, "y")
				time.Sleep(10 * time.Second)
				_, err = c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: queue})
				refused(t, "a capability that has expired", err, "ExpiredToken")
			})
		})
	}
}

func TestDisconnectIsNoticedWithAndWithoutTakeover(t *testing.T) {
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain=%v", plain), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backend := membox.New(nil)
				defer backend.Close()
				d := serve(t, setup{opener: backend, plain: plain})
				c := d.client("")
				queue := c.create("orders")
				ctx, leave := context.WithTimeout(t.Context(), 5*time.Second)
				defer leave()
				if _, err := c.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue, WaitTimeSeconds: 20}); err == nil {
					t.Error("it was answered")
				}
				synctest.Wait()
				c.send(queue, "x")
				c.one(queue) // no other receiver waits for it
			})
		})
	}
}
