package envelope

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/golden"
)

// With -update the vectors are written again. A change of them is a change of
// the format, and needs a new tag.
const vectorsFile = "testdata/vectors.json"

// A vector is one envelope with everything that is computed from it.
type vector struct {
	Name          string `json:"name"`
	PayloadBase64 string `json:"payload_b64"`
	// HashedHex is the input of hash_chain.
	HashedHex string `json:"hashed_hex"`
	// PublicKeyHex is the key of the signature, if the envelope is signed.
	PublicKeyHex string          `json:"public_key_hex,omitempty"`
	Envelope     json.RawMessage `json:"envelope"`
}

// vectorInputs returns the envelopes to publish: a plain one, and one for each
// likely mistake of an implementation.
func vectorInputs() []struct {
	name     string
	payload  []byte
	envelope Envelope
	seed     byte
} {
	at := sentAt
	id := "01KE0000000000000000000000"
	corr := "019b7b1e-0000-7000-8000-000000000000"
	manyAttributes := make(map[string]string)
	for i := range 64 {
		manyAttributes[fmt.Sprintf("k%02d", i)] = strings.Repeat("v", i)
	}
	return []struct {
		name     string
		payload  []byte
		envelope Envelope
		seed     byte
	}{
		{"plain", []byte("Hi"), Envelope{ID: id, Queue: "user:42:inbox", SentAt: at, DedupKey: "k-1", Attributes: map[string]string{"k": "v"}, CorrelationID: corr, Shard: 123, Attempt: 1}, 0},
		{"everything empty", nil, Envelope{ID: id, Queue: "t", SentAt: time.Unix(0, 0)}, 0},
		{"fraction of zeros", []byte{0}, Envelope{ID: id, Queue: "t", SentAt: time.Unix(1767323045, 0), Attempt: 1}, 0},
		{"attributes sort by bytes", []byte("x"), Envelope{ID: id, Queue: "t", SentAt: at, Attributes: map[string]string{"b": "2", "a": "1", "B": "3", "aa": "4", "é": "5", "\uff5e": "6", "\U0001f600": "7"}}, 0},
		{"text that JSON escapes", []byte("\"\\"), Envelope{ID: id, Queue: "a \"quoted\" topic\\", SentAt: at, DedupKey: "tab\tnewline\nnul\x00", Attributes: map[string]string{"<&>": "\u2028\u007f"}}, 0},
		{"many attributes", []byte("x"), Envelope{ID: id, Queue: "t", SentAt: at, Attributes: manyAttributes}, 0},
		{"payload of 2049 bytes", pattern(2049), Envelope{ID: id, Queue: "t", SentAt: at}, 0},
		{"signed", []byte("Hi"), Envelope{ID: id, Queue: "user:42:inbox", SentAt: at, DedupKey: "k-1", CorrelationID: corr, Attempt: 2}, 'a'},
	}
}

// signV1 signs an envelope as senders did before version 2.
func signV1(e *Envelope, key ed25519.PrivateKey) {
	e.Signature = Signature(ed25519.Sign(key, signed1(&e.HashChain)))
}

func computeVectors(t *testing.T) []vector {
	t.Helper()
	var vectors []vector
	for _, in := range vectorInputs() {
		e := in.envelope
		if err := e.Seal(in.payload); err != nil {
			t.Fatalf("%s: %v", in.name, err)
		}
		v := vector{Name: in.name, PayloadBase64: base64.StdEncoding.EncodeToString(in.payload)}
		if in.seed != 0 {
			signV1(&e, key(in.seed))
			v.PublicKeyHex = hex.EncodeToString(public(key(in.seed)))
		}
		v.HashedHex = hex.EncodeToString(e.appendChained(nil))
		text, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		v.Envelope = text
		vectors = append(vectors, v)
	}
	return vectors
}

func TestVectorsMatchPublishedFile(t *testing.T) {
	golden.MatchJSON(t, vectorsFile, computeVectors(t))
}

// TestVectorsHoldForAnotherImplementation reads the published file like an independent
// implementation that knows only the package documentation: with the standard JSON
// decoder, another BLAKE3, and nothing of this package.
func TestVectorsHoldForAnotherImplementation(t *testing.T) {
	text, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []map[string]any
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) == 0 {
		t.Fatal(len(vectors), err)
	}
	signed := 0
	for _, v := range vectors {
		envelope := v["envelope"].(map[string]any)
		body, err := base64.StdEncoding.DecodeString(v["payload_b64"].(string))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("b3:%x", referenceBLAKE3(body)); got != envelope["payload_hash"] {
			t.Errorf("%s: payload_hash %s, published %s", v["name"], got, envelope["payload_hash"])
		}
		hashed := referenceChained(envelope)
		if got := fmt.Sprintf("%x", hashed); got != v["hashed_hex"] {
			t.Errorf("%s: hashed %s, published %s", v["name"], got, v["hashed_hex"])
		}
		sum := referenceBLAKE3([]byte(hashed))
		if got := fmt.Sprintf("b3:%x", sum); got != envelope["hash_chain"] {
			t.Errorf("%s: hash_chain %s, published %s", v["name"], got, envelope["hash_chain"])
		}
		if envelope["sig"] == nil {
			continue
		}
		signed++
		publicKey, errKey := hex.DecodeString(v["public_key_hex"].(string))
		signature, errSignature := hex.DecodeString(strings.TrimPrefix(envelope["sig"].(string), "ed25519:"))
		if errKey != nil || errSignature != nil || !ed25519.Verify(publicKey, append([]byte("mailbox envelope signature v1\n"), sum[:]...), signature) {
			t.Errorf("%s: the signature does not verify", v["name"])
		}
	}
	if signed == 0 {
		t.Error("no vector is signed")
	}
}

// referenceChained builds the input of the hash chain from decoded JSON.
func referenceChained(envelope map[string]any) string {
	lengthAndText := func(s string) string {
		n := len(s)
		return string([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + s
	}
	out := "mailbox envelope v1\n"
	for _, name := range []string{"topic", "ts", "idem_key", "payload_hash"} {
		out += lengthAndText(envelope[name].(string))
	}
	var pairs []string
	for key, value := range envelope["attrs"].(map[string]any) {
		// Keys differ, and a key sorts before all keys that it is a prefix of, so
		// sorting by key and NUL is sorting by key.
		pairs = append(pairs, key+"\x00"+lengthAndText(key)+lengthAndText(value.(string)))
	}
	sort.Strings(pairs)
	out += string([]byte{0, 0, 0, byte(len(pairs))})
	for _, pair := range pairs {
		out += pair[strings.IndexByte(pair, 0)+1:]
	}
	return out
}

func TestPublishedEnvelopesParseAndVerify(t *testing.T) {
	for i, v := range computeVectors(t) {
		e, err := Parse(v.Envelope)
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		if err := e.Verify(vectorInputs()[i].payload); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
		if again, err := e.AppendJSON(nil); err != nil || !bytes.Equal(again, v.Envelope) {
			t.Errorf("%s is written differently after reading:\n%s\n%s", v.Name, again, v.Envelope)
		}
	}
}
