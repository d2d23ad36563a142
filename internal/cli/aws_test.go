package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
)

func TestATokenIsPrintedAsCredentialsOfAWS(t *testing.T) {
	d := start(t, inMemory())
	token, err := capability.ReadTokenFile(d.tokenFile())
	if err != nil {
		t.Fatal(err)
	}
	want := token.Credentials()
	lines := strings.Split(d.must(t, "cap", "aws"), "\n")
	if len(lines) != 3 || lines[0] != "export AWS_ACCESS_KEY_ID="+want.AccessKeyID ||
		lines[1] != "export AWS_SECRET_ACCESS_KEY="+want.SecretAccessKey.Reveal() || lines[2] != "export AWS_SESSION_TOKEN="+want.SessionToken {
		t.Errorf("printed %d lines that are not the credentials", len(lines))
	}
	var v struct {
		Version                                                int
		AccessKeyID, SecretAccessKey, SessionToken, Expiration string
	}
	if err := json.Unmarshal([]byte(d.must(t, "cap", "aws", d.tokenFile(), "--json")), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version != 1 || v.AccessKeyID != want.AccessKeyID || v.SecretAccessKey != want.SecretAccessKey.Reveal() || v.SessionToken != want.SessionToken || v.Expiration == "" {
		t.Error("what a credential_process has to print is not complete")
	}
	r := d.mailbox(t, "cap", "aws", "nowhere.token")
	r.wantCode(t, 2, "cannot be read")
}
