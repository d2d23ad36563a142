package sigv4_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sigv4"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// guard accepts requests that are signed with the right secret.
func guard(w http.ResponseWriter, r *http.Request) {
	call, err := sqswire.Read(r, sqswire.RequestLimit)
	if err == nil {
		err = authenticate(r, call)
	}
	if err != nil {
		_ = call.Fail(w, err)
		return
	}
	_ = call.Answer(w, &sqswire.PurgeQueueOutput{})
}

func authenticate(r *http.Request, call *sqswire.Call) error {
	signed, err := sigv4.Parse(r)
	if err != nil {
		return err
	}
	if err := signed.CheckTime(time.Now()); err != nil {
		return err
	}
	if err := signed.CheckScope("sqs"); err != nil {
		return err
	}
	if signed.AccessKeyID != testKey || signed.SessionToken != testToken {
		return sqswire.UnrecognizedClient.Default()
	}
	if !signed.VerifiedBy(secretOf(testSecret), call.BodySHA256()) {
		return sqswire.InvalidSignature.Default()
	}
	return nil
}

// client returns an AWS client with a secret, which may not be that of the server.
func client(t *testing.T, secret string, header http.Header) *sqs.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(guard))
	t.Cleanup(server.Close)
	return sqs.New(sqs.Options{
		BaseEndpoint: aws.String(server.URL), Region: "eu-north-1", Retryer: aws.NopRetryer{},
		HTTPClient: withHeader{server.Client(), header},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: testKey, SecretAccessKey: secret, SessionToken: testToken}, nil
		}),
	})
}

// withHeader changes headers of requests after they were signed.
type withHeader struct {
	*http.Client
	header http.Header
}

func (c withHeader) Do(r *http.Request) (*http.Response, error) {
	for name, values := range c.header {
		r.Header[name] = values
	}
	return c.Client.Do(r)
}

func TestSDKIsAcceptedOnlyWithTheRightSecret(t *testing.T) {
	for name, c := range map[string]struct {
		secret string
		header http.Header
		want   string
	}{
		"the right secret": {secret: testSecret},
		"another secret":   {secret: "another", want: "SignatureDoesNotMatch"},
		"another action":   {testSecret, http.Header{"X-Amz-Target": {"AmazonSQS.DeleteQueue"}}, "SignatureDoesNotMatch"},
		"another token":    {testSecret, http.Header{"X-Amz-Security-Token": {"another"}}, "InvalidClientTokenId"},
		"no signature":     {testSecret, http.Header{"Authorization": nil}, "MissingAuthenticationToken"},
	} {
		_, err := client(t, c.secret, c.header).PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: aws.String("http://localhost/1/q")})
		failure, _ := errors.AsType[smithy.APIError](err)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (failure == nil || failure.ErrorCode() != c.want):
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestContentLengthIsCoveredBySignature(t *testing.T) {
	const body = "{}"
	r := sign(t, newRequest(t, "http://localhost/", body), body, "sqs")
	if !strings.Contains(r.Header.Get("Authorization"), "content-length;") {
		t.Fatal("the SDK does not sign the length any more")
	}
	r.Header.Del("Content-Length")
	if !verified(t, r, testSecret) {
		t.Error("the length is not found in the request")
	}
	r = sign(t, newRequest(t, "http://localhost/", body), body, "sqs")
	r.Header.Del("Content-Length")
	r.ContentLength = 3
	if verified(t, r, testSecret) {
		t.Error("another length is verified")
	}
}
