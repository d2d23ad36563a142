package sigv4_test

import (
	"crypto/sha256"
	"testing"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sigv4"
)

func BenchmarkVerify(b *testing.B) {
	const body = `{"QueueUrl":"http://localhost:9324/000000000000/orders","MessageBody":"hello"}`
	r := sign(b, newRequest(b, "http://localhost:9324/", body), body, "sqs")
	hash := sha256.Sum256([]byte(body))
	secret := secretOf(testSecret)
	b.ReportAllocs()
	for b.Loop() {
		signed, err := sigv4.Parse(r)
		if err != nil || !signed.VerifiedBy(secret, hash) {
			b.Fatal("not verified")
		}
	}
}
