package envelope

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/golden"
)

const vectors2File = "testdata/vectors2.json"

// A vector2 is one message with its signature of version 2.
type vector2 struct {
	Name          string `json:"name"`
	PayloadBase64 string `json:"payload_b64"`
	// ReplyTo, Group and CorrelationID are as the sender gave them.
	ReplyTo       string `json:"reply_to"`
	Group         string `json:"group"`
	CorrelationID string `json:"corr_id"`
	// SignedHex is the input of the signature.
	SignedHex    string          `json:"signed_hex"`
	PublicKeyHex string          `json:"public_key_hex"`
	Envelope     json.RawMessage `json:"envelope"`
}

func computeVectors2(t *testing.T) []vector2 {
	t.Helper()
	full := Envelope{ID: "01KE0000000000000000000000", Queue: "user:42:inbox", SentAt: sentAt, DedupKey: "k-1", Attempt: 1}
	full.Attributes = map[string]string{AttributeExpires: sentAt.Add(time.Hour).UTC().Format(timeLayout)}
	full.ReplyTo, full.Group, full.CorrelationID = "reply:01KE0000000000000000000001", "customer-7", "019b7b1e-0000-7000-8000-000000000000"
	bare := Envelope{ID: full.ID, Queue: "t", SentAt: sentAt, DedupKey: "k-2"}
	wide := bare
	wide.ReplyTo, wide.Group, wide.CorrelationID = "é\u2028", "\U0001f600", "\"\\"
	var vectors []vector2
	for _, in := range []struct {
		name string
		e    Envelope
	}{{"everything", full}, {"nothing but the chain", bare}, {"text beyond ASCII", wide}} {
		body := []byte("Hi")
		if err := in.e.Seal(body); err != nil {
			t.Fatal(err)
		}
		if err := in.e.Sign(key('a')); err != nil {
			t.Fatal(err)
		}
		text, err := in.e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		vectors = append(vectors, vector2{
			in.name, base64.StdEncoding.EncodeToString(body), in.e.ReplyTo, in.e.Group, in.e.CorrelationID,
			hex.EncodeToString(in.e.signed2(&in.e.HashChain)), hex.EncodeToString(public(key('a'))), text,
		})
	}
	return vectors
}

func TestVectorsOfVersion2AreWhatIsPublished(t *testing.T) {
	golden.MatchJSON(t, vectors2File, computeVectors2(t))
}

// TestVectorsOfVersion2HoldForAnotherImplementation builds the signed bytes as the
// package documentation says, without code of this package.
func TestVectorsOfVersion2HoldForAnotherImplementation(t *testing.T) {
	text, err := os.ReadFile(vectors2File)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []map[string]any
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) == 0 {
		t.Fatal(len(vectors), err)
	}
	for _, v := range vectors {
		envelope := v["envelope"].(map[string]any)
		chain := referenceBLAKE3([]byte(referenceChained(envelope)))
		signed := "mailbox envelope signature v2\n" + string(chain[:])
		for _, name := range []string{"reply_to", "group", "corr_id"} {
			value := v[name].(string)
			n := len(value)
			signed += string([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + value
		}
		if got := hex.EncodeToString([]byte(signed)); got != v["signed_hex"] {
			t.Errorf("%s: signed %s, published %s", v["name"], got, v["signed_hex"])
		}
		publicKey, errKey := hex.DecodeString(v["public_key_hex"].(string))
		signature, errSignature := hex.DecodeString(strings.TrimPrefix(envelope["sig"].(string), "ed25519:"))
		if errKey != nil || errSignature != nil || !ed25519.Verify(publicKey, []byte(signed), signature) {
			t.Errorf("%s: the signature does not verify", v["name"])
		}
	}
}
