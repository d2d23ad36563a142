package sigv4_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sigv4"
)

// scoped returns a request that is signed for a region, a service and a time.
func scoped(t testing.TB, region, service string, at time.Time) *http.Request {
	t.Helper()
	r := newRequest(t, "http://localhost:9324/", "x")
	hash := sha256.Sum256([]byte("x"))
	credentials := aws.Credentials{AccessKeyID: testKey, SecretAccessKey: testSecret}
	if err := v4.NewSigner().SignHTTP(t.Context(), credentials, r, hex.EncodeToString(hash[:]), service, region, at); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSecretVerifiesChangingScopes(t *testing.T) {
	requests := []*http.Request{
		scoped(t, "eu-north-1", "sqs", testTime), scoped(t, "eu-north-1", "sqs", testTime.Add(time.Minute)),
		scoped(t, "eu-north-1", "sqs", testTime.Add(24*time.Hour)), scoped(t, "eu-north-1", "sqs", testTime),
		scoped(t, "eu-west-1", "sqs", testTime), scoped(t, "eu-north-1", "sqs", testTime), scoped(t, "eu-north-1", "sns", testTime),
	}
	hash := sha256.Sum256([]byte("x"))
	secret, wrong := secretOf(testSecret), secretOf(testSecret+"x")
	var together sync.WaitGroup
	for range 4 {
		together.Go(func() {
			for range 20 {
				for i, r := range requests {
					signed, err := sigv4.Parse(r)
					if err != nil || !signed.VerifiedBy(secret, hash) || signed.VerifiedBy(wrong, hash) {
						t.Errorf("request %d: %v, or not told from others", i, err)
						return
					}
				}
			}
		})
	}
	together.Wait()
}

func TestSignatureIsInvalidInAnotherScope(t *testing.T) {
	hash := sha256.Sum256([]byte("x"))
	for _, change := range [][2]string{{"/eu-north-1/", "/eu-west-1/"}, {"/sqs/", "/sns/"}} {
		secret := secretOf(testSecret)
		right := scoped(t, "eu-north-1", "sqs", testTime)
		wrong := right.Clone(t.Context())
		wrong.Header.Set("Authorization", strings.Replace(right.Header.Get("Authorization"), change[0], change[1], 1))
		for i, r := range []*http.Request{right, wrong, right, wrong} {
			signed, err := sigv4.Parse(r)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := signed.VerifiedBy(secret, hash), r == right; got != want {
				t.Errorf("%v, request %d: verified %v", change, i, got)
			}
		}
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	secret := secretOf(testSecret)
	signed, err := sigv4.Parse(scoped(t, "eu-north-1", "sqs", testTime))
	if err != nil || !signed.VerifiedBy(secret, sha256.Sum256([]byte("x"))) {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if text := fmt.Sprintf(verb, secret); text != "[redacted]" {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}

func TestVerifyingCostsLittleMemory(t *testing.T) {
	r, hash, secret := scoped(t, "eu-north-1", "sqs", testTime), sha256.Sum256([]byte("x")), secretOf(testSecret)
	allocated := testing.AllocsPerRun(200, func() {
		if signed, err := sigv4.Parse(r); err != nil || !signed.VerifiedBy(secret, hash) {
			t.Fatal("not verified")
		}
	})
	// Two are typical; the garbage collector and the race detector may empty the pools.
	// Deriving the key for the scope again takes more than fifty.
	if allocated > 20 {
		t.Errorf("%.0f allocations", allocated)
	}
}

// FuzzTime checks that a time is accepted if and only if time.Parse reads it in exactly
// this format.
func FuzzTime(f *testing.F) {
	for _, text := range []string{
		"20150830T123600Z", "20160229T000000Z", "20150229T000000Z", "20151301T000000Z", "20150100T000000Z", "20150830T240000Z",
		"20150830T126000Z", "20150830T123660Z", "20150830T12360Z", "20150830T123600z", "2015083T0123600Z", "20150830T1236.5Z0", "00000101T000000Z",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const format = "20060102T150405Z"
		want, err := time.Parse(format, text)
		exact := err == nil && want.Format(format) == text
		r := &http.Request{Method: http.MethodGet, Host: "h", Header: http.Header{
			"Authorization": {"AWS4-HMAC-SHA256 Credential=K/" + (text + "00000000")[:8] + "/r/sqs/aws4_request, SignedHeaders=host, Signature=" + strings.Repeat("a", 64)},
			"X-Amz-Date":    {text},
		}}
		r.URL = newRequest(t, "http://h/", "").URL
		signed, err := sigv4.Parse(r)
		if exact != (err == nil) && !strings.ContainsAny((text + "00000000")[:8], "/, ") {
			t.Fatalf("%q: %v, want %v", text, err, exact)
		}
		if err == nil && !signed.Time.Equal(want) {
			t.Errorf("%q is %v, want %v", text, signed.Time, want)
		}
	})
}
