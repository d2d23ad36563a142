package sigv4_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sigv4"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// FuzzParse checks that any request is parsed or refused with a code, and that a secret
// does not verify a request that was not signed with it.
func FuzzParse(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=K/20150830/r/sqs/aws4_request, SignedHeaders=host;x-amz-date, Signature="+strings.Repeat("a", 64), "20150830T123600Z", "a=b")
	f.Add("", "", "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=20150830T123600Z&X-Amz-Credential=K/20150830/r/sqs/aws4_request&X-Amz-SignedHeaders=host&X-Amz-Signature="+strings.Repeat("b", 64))
	f.Fuzz(func(t *testing.T, authorization, date, query string) {
		r := &http.Request{
			Method: http.MethodGet, Host: "localhost", URL: &url.URL{Path: "/", RawQuery: query},
			Header: http.Header{"Authorization": {authorization}, "X-Amz-Date": {date}},
		}
		signed, err := sigv4.Parse(r)
		if err != nil {
			if failure, ok := errors.AsType[*sqswire.Error](err); !ok || failure.Message == "" {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		_ = signed.CheckTime(time.Unix(1e9, 0))
		if signed.VerifiedBy(secretOf("a secret that was never used"), sha256.Sum256(nil)) {
			t.Fatal("verified")
		}
	})
}

// plainQuery reports whether the names of a query are plain and unique. The SDK sorts
// other names in their decoded form, while AWS sorts them in their encoded form.
func plainQuery(query string) bool {
	values, err := url.ParseQuery(query)
	for name, several := range values {
		if len(several) > 1 || url.QueryEscape(name) != name {
			return false
		}
	}
	return err == nil && !strings.ContainsAny(query, " #\r\n\t")
}

// notInHeaders reports whether a character is changed in transit, or is space for the
// SDK and not for HTTP.
func notInHeaders(r rune) bool { return r != '\t' && (r < ' ' || r >= 0x7F) }

// FuzzSigned checks that a request that the SDK has signed is verified on arrival.
func FuzzSigned(f *testing.F) {
	f.Add("/", "a=b&c=d", " v  w ", "{}")
	f.Add("/000000000000/queue.fifo", "", "", "")
	f.Add("/ä/%2F/..//x", "b=%C3%A4&a=+&c=%2B", "\t", "x")
	f.Fuzz(func(t *testing.T, path, query, header, body string) {
		if !plainQuery(query) || strings.ContainsFunc(header, notInHeaders) {
			t.Skip("no client sends such a query or such a header")
		}
		target := &url.URL{Scheme: "http", Host: "localhost:9324", Path: "/" + path, RawQuery: query}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target.String(), strings.NewReader(body))
		if err != nil {
			t.Skip("no client makes such a request")
		}
		r.Header.Set("X-Custom", header)
		hash := sha256.Sum256([]byte(body))
		credentials := aws.Credentials{AccessKeyID: testKey, SecretAccessKey: testSecret}
		if err := v4.NewSigner().SignHTTP(t.Context(), credentials, r, hex.EncodeToString(hash[:]), "sqs", "eu-north-1", testTime); err != nil {
			t.Skip("the SDK does not sign it")
		}
		var wire strings.Builder
		if err := r.Write(&wire); err != nil {
			t.Skip("no client writes it")
		}
		received, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire.String())))
		if err != nil {
			t.Skip("no server reads it")
		}
		if !verified(t, received, testSecret) {
			t.Fatalf("not verified: %q", wire.String())
		}
	})
}
