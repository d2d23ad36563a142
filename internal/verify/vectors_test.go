package verify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/testing/golden"
)

// With -update the vectors are written again. A change of them is a change of
// the format, and invalidates all existing tokens.
const vectorsFile = "testdata/tokens.json"

// A vector is one token with everything that it is made of.
type vector struct {
	Name            string   `json:"name"`
	KeyID           uint32   `json:"key_id"`
	SecretHex       string   `json:"secret_hex"`
	TokenID         string   `json:"token_id"`
	Tenant          string   `json:"tenant"`
	Caveats         []string `json:"caveats"`
	RootKeyHex      string   `json:"root_key_hex"`
	IdentifierHex   string   `json:"identifier_hex"`
	SignatureHex    string   `json:"signature_hex"`
	Token           string   `json:"token"`
	AccessKeyID     string   `json:"aws_access_key_id"`
	SecretAccessKey string   `json:"aws_secret_access_key"`
	SessionToken    string   `json:"aws_session_token"`
}

func computeVectors(t *testing.T) []vector {
	t.Helper()
	exp := capability.ExpiresAt(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	var vectors []vector
	for _, in := range []struct {
		name, tenant string
		caveats      []capability.Caveat
	}{
		{"no caveats (refused: unscoped)", "", nil},
		{"plain", "", []capability.Caveat{capability.Operations(capability.OpSend, capability.OpRecv), capability.Queues(capability.Queue("orders"), capability.QueuesUnder("user:42:")), exp}},
		{"tenant", "acme", []capability.Caveat{capability.AllOperations(), capability.Queues(capability.AnyQueue()), exp}},
		{"everything", "acme", []capability.Caveat{
			capability.Operations(capability.OpSend), capability.Queues(capability.Queue("100% *,"), capability.QueuesUnder("é/")), exp, capability.NotBefore(time.Unix(0, 0)), capability.MessagesPerSecond(100), capability.BytesPerSecond(65536),
			capability.MaxBodyBytes(1024), capability.Peers("spiffe://example.org/worker"), capability.Audience("eu1", "eu2"), capability.Tenant("acme"), capability.ForReceipt("r1"),
		}},
	} {
		key := fixedKey(t, 0x2a)
		id := macaroon.Identifier{Key: uint32(key.ID()), Token: numbered(7), Tenant: in.tenant}
		copy(id.Token[:], []byte{1, 2, 3, 4, 5, 6})
		token, err := mint(key, id, in.caveats)
		if err != nil {
			t.Fatal(err)
		}
		parts, aws := takeApart(token.RevealBinary(nil)), macaroon.CredentialsOf(token.RevealBinary(nil))
		v := vector{
			Name: in.name, KeyID: uint32(key.ID()), SecretHex: hex.EncodeToString(key.Reveal()), TokenID: capability.TokenID(id.Token).String(), Tenant: in.tenant, Caveats: []string{},
			RootKeyHex: hex.EncodeToString(macaroon.RootKey(key.Reveal(), in.tenant)), IdentifierHex: hex.EncodeToString(parts.identifier), SignatureHex: hex.EncodeToString(parts.signature),
			Token: token.Reveal(), AccessKeyID: aws.AccessKeyID, SecretAccessKey: aws.SecretAccessKey.Reveal(), SessionToken: aws.SessionToken,
		}
		for _, c := range in.caveats {
			v.Caveats = append(v.Caveats, c.String())
		}
		vectors = append(vectors, v)
	}
	return vectors
}

func TestVectorsMatchPublishedFile(t *testing.T) {
	golden.MatchJSON(t, vectorsFile, computeVectors(t))
}

// TestVectorsHoldForAnotherImplementation computes the published tokens from
// their ingredients, knowing only the package documentation.
func TestVectorsHoldForAnotherImplementation(t *testing.T) {
	text, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) == 0 {
		t.Fatal(len(vectors), err)
	}
	mac := func(key, message string) string {
		h := hmac.New(sha256.New, []byte(key))
		h.Write([]byte(message))
		return string(h.Sum(nil))
	}
	section := func(content string) string {
		length := string([]byte{byte(len(content))})
		if len(content) >= 128 {
			length = string([]byte{byte(len(content)) | 0x80, byte(len(content) >> 7)})
		}
		return "\x02" + length + content + "\x00"
	}
	for _, v := range vectors {
		secret, errSecret := hex.DecodeString(v.SecretHex)
		id, errID := hex.DecodeString(v.IdentifierHex[10:42])
		if errSecret != nil || errID != nil {
			t.Fatal(errSecret, errID)
		}
		// HKDF: extract with a salt of 32 zeros, expand one block.
		root := mac(mac(string(make([]byte, 32)), string(secret)), "mbx-macaroon"+v.Tenant+"\x01")
		identifier := "\x01\x00\x00\x00\x2a" + string(id) + v.Tenant
		signature := mac(mac("macaroons-key-generator", root), identifier)
		token := "\x02" + section(identifier)
		for _, caveat := range v.Caveats {
			token += section(caveat)
			signature = mac(signature, caveat)
		}
		token += "\x00"
		for name, pair := range map[string][2]string{
			"root key":   {fmt.Sprintf("%x", root), v.RootKeyHex},
			"identifier": {fmt.Sprintf("%x", identifier), v.IdentifierHex},
			"signature":  {fmt.Sprintf("%x", signature), v.SignatureHex},
			"token":      {base64.RawURLEncoding.EncodeToString([]byte(token + "\x06\x20" + signature)), v.Token},
			"session":    {base64.RawURLEncoding.EncodeToString([]byte(token)), v.SessionToken},
			"secret":     {base64.StdEncoding.EncodeToString([]byte(signature)), v.SecretAccessKey},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s: %s is %s, published as %s", v.Name, name, pair[0], pair[1])
			}
		}
		if _, err := capability.Parse(v.Token); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
	}
}
