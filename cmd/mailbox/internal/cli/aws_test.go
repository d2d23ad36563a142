package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/server"
)

func TestTokenIsPrintedAsAWSCredentials(t *testing.T) {
	d := start(t, inMemory())
	token, err := capability.ReadTokenFile(d.tokenFile())
	if err != nil {
		t.Fatal(err)
	}
	want := macaroon.CredentialsOf(token.RevealBinary(nil))
	lines := strings.Split(d.must(t, "cap", "aws"), "\n")
	if len(lines) != 6 || lines[0] != "export AWS_ACCESS_KEY_ID="+want.AccessKeyID ||
		lines[1] != "export AWS_SECRET_ACCESS_KEY="+want.SecretAccessKey.Reveal() || lines[2] != "export AWS_SESSION_TOKEN="+want.SessionToken {
		t.Errorf("printed %d lines that are not the credentials", len(lines))
	}
	if got, want := strings.Join(lines[3:], "\n"), "export AWS_REGION=local-1\nexport AWS_DEFAULT_REGION=local-1\nexport AWS_ENDPOINT_URL_SQS=http://"+d.Address(server.HTTP); got != want {
		t.Errorf("region and endpoint are\n%s\nwant\n%s", got, want)
	}
	hostile := d.mailbox(t, "cap", "aws", "--region", "eu'; touch x", "--addr", "https://far/a$(b)")
	for _, want := range []string{`export AWS_REGION='eu'\''; touch x'`, `export AWS_ENDPOINT_URL_SQS='https://far:443/a$(b)'`} {
		if !strings.Contains(hostile.stdout, want) {
			t.Errorf("no %s in\n%s", want, hostile.stdout)
		}
	}
	var v struct {
		Version                                                int
		AccessKeyID, SecretAccessKey, SessionToken, Expiration string
	}
	if err := json.Unmarshal([]byte(d.must(t, "cap", "aws", d.tokenFile(), "--json")), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version != 1 || v.AccessKeyID != want.AccessKeyID || v.SecretAccessKey != want.SecretAccessKey.Reveal() || v.SessionToken != want.SessionToken || v.Expiration == "" {
		t.Error("the output for credential_process is not complete")
	}
	r := d.mailbox(t, "cap", "aws", "nowhere.token")
	r.wantCode(t, 2, "read token: open nowhere.token")
	d.mailbox(t, "cap", "aws", "--region", "").wantCode(t, 2, "--region is empty")
}

// TestRegionOfEnvironmentIsNotPrinted: for a region of Amazon, version 1 of the AWS CLI
// ignores the endpoint, and the token would go to Amazon.
func TestRegionOfEnvironmentIsNotPrinted(t *testing.T) {
	d := start(t, inMemory())
	r := mailbox(t, d.environ("AWS_REGION=us-east-1", "AWS_DEFAULT_REGION=us-east-1"), "cap", "aws")
	if r.code != 0 || strings.Contains(r.stdout, "us-east-1") || !strings.Contains(r.stdout, "export AWS_REGION=local-1\n") {
		t.Errorf("code %d, printed\n%s", r.code, r.stdout)
	}
}
