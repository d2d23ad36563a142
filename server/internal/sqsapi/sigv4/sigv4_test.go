package sigv4_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sigv4"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

const (
	testKey    = "MBXTESTKEY"
	testSecret = "kW9/secret+with/odd+characters"
	testToken  = "token+with/odd=characters"
)

var testTime = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// sign signs a request with the SDK and returns it as a server reads it.
func sign(t testing.TB, r *http.Request, body string, service string) *http.Request {
	t.Helper()
	hash := sha256.Sum256([]byte(body))
	credentials := aws.Credentials{AccessKeyID: testKey, SecretAccessKey: testSecret, SessionToken: testToken}
	if err := v4.NewSigner().SignHTTP(t.Context(), credentials, r, hex.EncodeToString(hash[:]), service, "eu-north-1", testTime); err != nil {
		t.Fatal(err)
	}
	return transmit(t, r)
}

// transmit writes a request and reads it again.
func transmit(t testing.TB, r *http.Request) *http.Request {
	t.Helper()
	var wire bytes.Buffer
	if err := r.Write(&wire); err != nil {
		t.Fatal(err)
	}
	return receive(t, wire.String())
}

func receive(t testing.TB, wire string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newRequest returns a request of the JSON protocol of SQS.
func newRequest(t testing.TB, target, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	r.Header.Set("X-Amz-Target", "AmazonSQS.SendMessage")
	r.Header.Add("X-Several", "  one ")
	r.Header.Add("X-Several", "two   words")
	return r
}

func secretOf(text string) *sigv4.Secret { return sigv4.NewSecret(macaroon.NewSecret(text)) }

// verified reports whether the secret verifies the request.
func verified(t testing.TB, r *http.Request, secret string) bool {
	t.Helper()
	signed, err := sigv4.Parse(r)
	if err != nil {
		return false
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return signed.VerifiedBy(secretOf(secret), sha256.Sum256(body))
}

func TestRequestsThatTheSDKSignedAreVerified(t *testing.T) {
	for _, target := range []string{
		"http://localhost:9324/",
		"http://localhost:9324",
		"https://sqs.eu-north-1.amazonaws.com/000000000000/orders.fifo",
		"http://queue.example/a%20b/%C3%A9/x%2Fy",
		"http://queue.example//double/./dots/..",
		"http://queue.example/?b=2&a=1&a=0&empty=&c=a%2Fb%20%C3%A9&plus=a+b&bare",
	} {
		for _, body := range []string{"", `{"MessageBody":"hello"}`} {
			r := sign(t, newRequest(t, target, body), body, "sqs")
			signed, err := sigv4.Parse(r)
			if err != nil {
				t.Fatalf("%s: %v", target, err)
			}
			if signed.AccessKeyID != testKey || signed.SessionToken != testToken || signed.Region != "eu-north-1" ||
				signed.Service != "sqs" || !signed.Time.Equal(testTime) || signed.Expires != 0 {
				t.Errorf("%s: parsed as %+v", target, signed)
			}
			hash := sha256.Sum256([]byte(body))
			if !signed.VerifiedBy(secretOf(testSecret), hash) {
				t.Errorf("%s with body %q: not verified", target, body)
			}
			if signed.VerifiedBy(secretOf(testSecret+"x"), hash) || signed.VerifiedBy(secretOf(""), hash) {
				t.Errorf("%s: verified by another secret", target)
			}
			hash[0] ^= 1
			if signed.VerifiedBy(secretOf(testSecret), hash) {
				t.Errorf("%s: verified with another body", target)
			}
		}
	}
}

func TestEveryChangeOfASignedRequestIsRefused(t *testing.T) {
	const body = `{"MessageBody":"hello"}`
	changes := map[string]func(r *http.Request){
		"method":         func(r *http.Request) { r.Method = http.MethodPut },
		"path":           func(r *http.Request) { r.URL.Path += "x" },
		"added query":    func(r *http.Request) { r.URL.RawQuery += "&x=1" },
		"changed query":  func(r *http.Request) { r.URL.RawQuery = strings.Replace(r.URL.RawQuery, "a=1", "a=2", 1) },
		"removed query":  func(r *http.Request) { r.URL.RawQuery = "" },
		"host":           func(r *http.Request) { r.Host = "other.example" },
		"target":         func(r *http.Request) { r.Header.Set("X-Amz-Target", "AmazonSQS.DeleteQueue") },
		"content type":   func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"removed header": func(r *http.Request) { r.Header.Del("X-Several") },
		"added value":    func(r *http.Request) { r.Header.Add("X-Several", "three") },
		"date": func(r *http.Request) {
			r.Header.Set("X-Amz-Date", testTime.Add(time.Second).Format("20060102T150405Z"))
		},
		"token": func(r *http.Request) { r.Header.Set("X-Amz-Security-Token", "other") },
		"body":  func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(body + " ")) },
	}
	for part, replacement := range map[string]string{
		"/20260203/": "/20260204/", "/eu-north-1/": "/eu-north-2/", "/sqs/": "/sns/", "/aws4_request": "/aws5_request",
		"x-several": "x-severas", ";host": "", ";x-amz-target": "", ";x-amz-date": "",
		"AWS4-HMAC-SHA256": "AWS4-HMAC-SHA512", "Signature=": "Signature=00",
	} {
		changes["authorization "+part] = func(r *http.Request) {
			changed := strings.Replace(r.Header.Get("Authorization"), part, replacement, 1)
			if changed == r.Header.Get("Authorization") {
				t.Errorf("nothing was changed: there is no %q in %s", part, changed)
			}
			r.Header.Set("Authorization", changed)
		}
	}
	signed := func() *http.Request {
		return sign(t, newRequest(t, "http://localhost:9324/000000000000/orders?a=1", body), body, "sqs")
	}
	if !verified(t, signed(), testSecret) {
		t.Fatal("the request is refused unchanged")
	}
	for name, change := range changes {
		r := signed()
		change(r)
		if verified(t, r, testSecret) {
			t.Errorf("with another %s the request is verified", name)
		}
	}
	authorization := signed().Header.Get("Authorization")
	for i := len(authorization) - 64; i < len(authorization); i++ {
		r := signed()
		digit := byte('0')
		if authorization[i] == '0' {
			digit = '1'
		}
		r.Header.Set("Authorization", authorization[:i]+string(digit)+authorization[i+1:])
		if verified(t, r, testSecret) {
			t.Errorf("with another digit %d the signature is verified", i)
		}
	}
}

func TestUncoveredHeadersMayChange(t *testing.T) {
	const body = `{}`
	r := sign(t, newRequest(t, "http://localhost:9324/", body), body, "sqs")
	r.Header.Set("User-Agent", "another")
	r.Header.Set("X-Forwarded-For", "10.0.0.1")
	r.Header["X-Several"] = []string{"\tone  ", " two  words "}
	if !verified(t, r, testSecret) {
		t.Error("headers that a proxy added, or other space in them, break the signature")
	}
}

// presign returns a presigned request as a server reads it.
func presign(t testing.TB, target, payloadHash string, expires string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	if expires != "" {
		query := r.URL.Query()
		query.Set("X-Amz-Expires", expires)
		r.URL.RawQuery = query.Encode()
	}
	credentials := aws.Credentials{AccessKeyID: testKey, SecretAccessKey: testSecret, SessionToken: testToken}
	signedURL, _, err := v4.NewSigner().PresignHTTP(t.Context(), credentials, r, payloadHash, "sqs", "eu-north-1", testTime)
	if err != nil {
		t.Fatal(err)
	}
	if r.URL, err = url.Parse(signedURL); err != nil {
		t.Fatal(err)
	}
	return transmit(t, r)
}

const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestPresignedRequestsAreVerified(t *testing.T) {
	const target = "http://localhost:9324/000000000000/orders?Action=ReceiveMessage&AttributeName.1=All"
	for _, payload := range []string{emptyHash, "UNSIGNED-PAYLOAD"} {
		r := presign(t, target, payload, "60")
		signed, err := sigv4.Parse(r)
		if err != nil {
			t.Fatal(err)
		}
		if signed.AccessKeyID != testKey || signed.SessionToken != testToken || signed.Expires != time.Minute {
			t.Errorf("parsed as %+v", signed)
		}
		if !signed.VerifiedBy(secretOf(testSecret), sha256.Sum256(nil)) {
			t.Errorf("payload %s: not verified", payload)
		}
		if signed.VerifiedBy(secretOf(testSecret), sha256.Sum256([]byte("Action=DeleteQueue"))) {
			t.Errorf("payload %s: verified with a body that was not signed", payload)
		}
		if signed.VerifiedBy(secretOf("x"), sha256.Sum256(nil)) {
			t.Errorf("payload %s: verified by another secret", payload)
		}
	}
}

func TestEveryChangeOfAPresignedRequestIsRefused(t *testing.T) {
	const target = "http://localhost:9324/000000000000/orders?Action=ReceiveMessage"
	for from, to := range map[string]string{
		"Action=ReceiveMessage": "Action=DeleteQueue",
		"X-Amz-Expires=60":      "X-Amz-Expires=600",
		"20260203T040506Z":      "20260203T040507Z",
		"eu-north-1":            "eu-north-2",
		"%2Fsqs%2F":             "%2Fsns%2F",
		"X-Amz-Security-Token=": "X-Amz-Security-Token=x",
		"X-Amz-Signature=":      "Z=1&X-Amz-Signature=",
		"X-Amz-Date=":           "X-Amz-Date=20260203T040506Z&X-Amz-Date=",
	} {
		r := presign(t, target, emptyHash, "60")
		changed := strings.Replace(r.URL.RawQuery, from, to, 1)
		if changed == r.URL.RawQuery {
			t.Errorf("nothing was changed: there is no %q in %s", from, changed)
		}
		r.URL.RawQuery = changed
		if verified(t, r, testSecret) {
			t.Errorf("with %s the request is verified", to)
		}
	}
	r := presign(t, target, emptyHash, "60")
	r.Header.Set("X-Amz-Target", "AmazonSQS.DeleteQueue")
	if verified(t, r, testSecret) {
		t.Error("a presigned request can be turned into another action by a header")
	}
}

func TestHeaderSignaturesCoverTheBody(t *testing.T) {
	const body = "Action=DeleteQueue"
	r := newRequest(t, "http://localhost:9324/", body)
	r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	credentials := aws.Credentials{AccessKeyID: testKey, SecretAccessKey: testSecret}
	if err := v4.NewSigner().SignHTTP(t.Context(), credentials, r, "UNSIGNED-PAYLOAD", "sqs", "eu-north-1", testTime); err != nil {
		t.Fatal(err)
	}
	if verified(t, transmit(t, r), testSecret) {
		t.Error("a body that the signature does not cover is accepted")
	}
}

// vectors are cases of the test suite that AWS published.
func TestPublishedVectors(t *testing.T) {
	const (
		secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
		date   = "X-Amz-Date: 20150830T123600Z\r\n"
		host   = "Host: example.amazonaws.com\r\n"
	)
	for name, vector := range map[string]struct{ start, headers, signedHeaders, body, service, signature string }{
		"get-vanilla": {
			start: "GET / HTTP/1.1", headers: host + date, signedHeaders: "host;x-amz-date", service: "service",
			signature: "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
		},
		"get-relative": {
			start: "GET /example/.. HTTP/1.1", headers: host + date, signedHeaders: "host;x-amz-date", service: "service",
			signature: "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
		},
		"get-slashes": {
			start: "GET //example// HTTP/1.1", headers: host + date, signedHeaders: "host;x-amz-date", service: "service",
			signature: "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84",
		},
		"get-vanilla-query-order-key-case": {
			start: "GET /?Param2=value2&Param1=value1 HTTP/1.1", headers: host + date, signedHeaders: "host;x-amz-date", service: "service",
			signature: "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
		},
		"get-vanilla-query-order-value": {
			start: "GET /?Param1=value2&Param1=value1 HTTP/1.1", headers: host + date, signedHeaders: "host;x-amz-date", service: "service",
			signature: "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694",
		},
		"get-header-value-trim": {
			start: "GET / HTTP/1.1", headers: host + "My-Header1:  value1\r\nMy-Header2:  \"a   b   c\"\r\n" + date,
			signedHeaders: "host;my-header1;my-header2;x-amz-date", service: "service",
			signature: "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
		},
		"get-header-key-duplicate": {
			start: "GET / HTTP/1.1", headers: host + "My-Header1: value2\r\nMy-Header1: value2\r\nMy-Header1: value1\r\n" + date,
			signedHeaders: "host;my-header1;x-amz-date", service: "service",
			signature: "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
		},
		"post-vanilla": {
			start: "POST / HTTP/1.1", headers: host + date, signedHeaders: "host;x-amz-date", service: "service",
			signature: "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
		},
		"post-x-www-form-urlencoded": {
			start: "POST / HTTP/1.1", headers: host + date + "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 13\r\n",
			signedHeaders: "content-type;host;x-amz-date", body: "Param1=value1", service: "service",
			signature: "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
		},
		"the example of the manual": {
			start:         "GET /?Action=ListUsers&Version=2010-05-08 HTTP/1.1",
			headers:       "Host: iam.amazonaws.com\r\nContent-Type: application/x-www-form-urlencoded; charset=utf-8\r\n" + date,
			signedHeaders: "content-type;host;x-amz-date", service: "iam",
			signature: "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
		},
	} {
		authorization := "Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/" + vector.service +
			"/aws4_request, SignedHeaders=" + vector.signedHeaders + ", Signature=" + vector.signature + "\r\n"
		r := receive(t, vector.start+"\r\n"+vector.headers+authorization+"\r\n"+vector.body)
		if !verified(t, r, secret) {
			t.Errorf("%s is not verified", name)
		}
		if verified(t, r, secret+"x") {
			t.Errorf("%s is verified by another secret", name)
		}
	}
}

func TestDateHeaderIsAcceptedForXAmzDate(t *testing.T) {
	for _, date := range []string{"Sun, 30 Aug 2015 12:36:00 GMT", "20150830T123600Z"} {
		r := receive(t, "GET / HTTP/1.1\r\nHost: a\r\nDate: "+date+"\r\nAuthorization: AWS4-HMAC-SHA256 Credential=K/20150830/r/sqs/aws4_request,SignedHeaders=date;host,Signature="+strings.Repeat("a", 64)+"\r\n\r\n")
		signed, err := sigv4.Parse(r)
		if err != nil {
			t.Fatal(err)
		}
		if want := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC); !signed.Time.Equal(want) {
			t.Errorf("%s: signed at %v, not %v", date, signed.Time, want)
		}
	}
}

func TestBrokenSignaturesGetTheirCodes(t *testing.T) {
	const good = "AWS4-HMAC-SHA256 Credential=K/20150830/r/sqs/aws4_request, SignedHeaders=host;x-amz-date, Signature="
	signature := strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		authorization, query, date string
		want                       sqswire.Code
	}{
		"nothing":              {want: sqswire.MissingAuthenticationToken},
		"another scheme":       {authorization: "Bearer x", want: sqswire.MissingAuthenticationToken},
		"another algorithm":    {authorization: "AWS4-ECDSA-P256-SHA256 Credential=x", want: sqswire.IncompleteSignature},
		"the old algorithm":    {authorization: "AWS AKID:signature", want: sqswire.IncompleteSignature},
		"nothing but a scheme": {authorization: "AWS4-HMAC-SHA256", want: sqswire.IncompleteSignature},
		"no signature":         {authorization: strings.TrimSuffix(good, ", Signature="), want: sqswire.IncompleteSignature},
		"a short signature":    {authorization: good + "aa", want: sqswire.InvalidSignature},
		"capitals":             {authorization: good + strings.ToUpper(signature), want: sqswire.InvalidSignature},
		"no headers":           {authorization: "AWS4-HMAC-SHA256 Credential=K/20150830/r/sqs/aws4_request, Signature=" + signature, want: sqswire.IncompleteSignature},
		"no credential":        {authorization: "AWS4-HMAC-SHA256 SignedHeaders=host, Signature=" + signature, want: sqswire.IncompleteSignature},
		"a short credential":   {authorization: strings.Replace(good, "K/20150830/r/", "K/20150830/", 1) + signature, want: sqswire.IncompleteSignature},
		"no key id":            {authorization: strings.Replace(good, "K/", "/", 1) + signature, want: sqswire.IncompleteSignature},
		"another end":          {authorization: strings.Replace(good, "aws4_request", "aws5_request", 1) + signature, want: sqswire.InvalidSignature},
		"another day":          {authorization: strings.Replace(good, "20150830", "20150831", 1) + signature, want: sqswire.InvalidSignature},
		"half a day":           {authorization: strings.Replace(good, "20150830", "2015083", 1) + signature, want: sqswire.InvalidSignature},
		"host not covered":     {authorization: strings.Replace(good, "host;", "", 1) + signature, want: sqswire.InvalidSignature},
		"capital headers":      {authorization: strings.Replace(good, "host", "Host", 1) + signature, want: sqswire.IncompleteSignature},
		"a bad date":           {authorization: good + signature, date: "2015-08-30T12:36:00Z", want: sqswire.IncompleteSignature},
		"no date":              {authorization: good + signature, date: "none", want: sqswire.IncompleteSignature},
		"a bad query":          {authorization: good + signature, query: "a=%zz", want: sqswire.IncompleteSignature},
		"half a presigned URL": {query: "X-Amz-Signature=" + signature, want: sqswire.IncompleteSignature},
		"presigned, no date":   {query: "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=K/20150830/r/sqs/aws4_request&X-Amz-SignedHeaders=host&X-Amz-Signature=" + signature, want: sqswire.IncompleteSignature},
		"presigned, two dates": {query: "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=20150830T123600Z&X-Amz-Date=20150830T123601Z&X-Amz-Credential=K/20150830/r/sqs/aws4_request&X-Amz-SignedHeaders=host&X-Amz-Signature=" + signature, want: sqswire.IncompleteSignature},
		"presigned too long":   {query: "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=20150830T123600Z&X-Amz-Expires=604801&X-Amz-Credential=K/20150830/r/sqs/aws4_request&X-Amz-SignedHeaders=host&X-Amz-Signature=" + signature, want: sqswire.IncompleteSignature},
		"presigned for 0 s": {
			query: "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=20150830T123600Z&X-Amz-Expires=0&X-Amz-Credential=K/20150830/r/sqs/aws4_request&X-Amz-SignedHeaders=host&X-Amz-Signature=" + signature,
			want:  sqswire.IncompleteSignature,
		},
	} {
		r := receive(t, "GET /?"+c.query+" HTTP/1.1\r\nHost: a\r\n\r\n")
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		switch c.date {
		case "":
			r.Header.Set("X-Amz-Date", "20150830T123600Z")
		case "none":
		default:
			r.Header.Set("X-Amz-Date", c.date)
		}
		if _, err := sigv4.Parse(r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestSignaturesEndAfterFifteenMinutes(t *testing.T) {
	signed, err := sigv4.Parse(sign(t, newRequest(t, "http://localhost/", ""), "", "sqs"))
	if err != nil {
		t.Fatal(err)
	}
	for shift, good := range map[time.Duration]bool{
		0: true, 15 * time.Minute: true, -15 * time.Minute: true,
		15*time.Minute + time.Second: false, -15*time.Minute - time.Second: false,
	} {
		err := signed.CheckTime(testTime.Add(shift))
		if good && err != nil || !good && !errors.Is(err, sqswire.InvalidSignature) {
			t.Errorf("%v after signing: %v", shift, err)
		}
	}
}

func TestPresignedRequestsExpire(t *testing.T) {
	for expires, cases := range map[string]map[time.Duration]error{
		"60": {
			0: nil, 59 * time.Second: nil, time.Minute: sqswire.RequestExpired,
			-15 * time.Minute: nil, -16 * time.Minute: sqswire.InvalidSignature,
		},
		"604800": {7*24*time.Hour - time.Second: nil, 7 * 24 * time.Hour: sqswire.RequestExpired},
		"":       {14 * time.Minute: nil, 15 * time.Minute: sqswire.RequestExpired},
	} {
		signed, err := sigv4.Parse(presign(t, "http://localhost/", emptyHash, expires))
		if err != nil {
			t.Fatal(err)
		}
		for shift, want := range cases {
			if err := signed.CheckTime(testTime.Add(shift)); !errors.Is(err, want) {
				t.Errorf("%s s, %v after signing: %v, want %v", expires, shift, err, want)
			}
		}
	}
}

func TestSignaturesForOtherServicesAreRefused(t *testing.T) {
	signed, err := sigv4.Parse(sign(t, newRequest(t, "http://localhost/", ""), "", "sns"))
	if err != nil {
		t.Fatal(err)
	}
	if err := signed.CheckScope("sqs"); !errors.Is(err, sqswire.InvalidSignature) {
		t.Errorf("a signature for SNS: %v", err)
	}
	if err := signed.CheckScope("sns"); err != nil {
		t.Error(err)
	}
}

func TestPresentReadsOnlyTheHead(t *testing.T) {
	for want, requests := range map[bool][]string{
		true: {
			"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: AWS4-HMAC-SHA256 x\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: AWS x:y\r\n\r\n",
			"GET /?X-Amz-Algorithm=x HTTP/1.1\r\nHost: a\r\n\r\n",
		},
		false: {
			"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer AWS4-HMAC-SHA256\r\n\r\n",
		},
	} {
		for _, request := range requests {
			if got := sigv4.Present(receive(t, request)); got != want {
				t.Errorf("Present is %t for %q", got, request)
			}
		}
	}
}
