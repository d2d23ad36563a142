package strictjson_test

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/internal/strictjson"
)

func TestStringsAreReadStrictly(t *testing.T) {
	for text, want := range map[string]error{
		`"plain"`: nil, `"é\u00e9\n\/"`: nil, `"\ud83d\ude00"`: nil,
		`"`: strictjson.ErrUnterminated, `"a\`: strictjson.ErrUnterminated, `"\n`: strictjson.ErrUnterminated, "\"a\nb\"": strictjson.ErrControl,
		"\"\\n\x01\"": strictjson.ErrControl, `"\x"`: strictjson.ErrEscape, `"\u12"`: strictjson.ErrHex, `"\u+123"`: strictjson.ErrHex,
		`"\ud83d"`: strictjson.ErrSurrogate, `"\ude00"`: strictjson.ErrSurrogate, `"\ud83d\u0041"`: strictjson.ErrSurrogate, `"\ud83d\u00"`: strictjson.ErrHex,
	} {
		r := strictjson.Reader{Data: []byte(text)}
		if _, err := r.Text(); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, text := range []string{`"a"`, `"\u00e9\t\ud83d\ude00"`, `"\ud83d"`, "\"\x01\"", `"\"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) == 0 || text[0] != '"' || !utf8.ValidString(text) {
			return
		}
		r := strictjson.Reader{Data: []byte(text)}
		got, err := r.Text()
		var want string
		errWant := json.Unmarshal([]byte(text[:r.At]), &want)
		switch {
		case err == nil && (errWant != nil || want != string(got)):
			t.Fatalf("%q became %q, package json says %q, %v", text, got, want, errWant)
		case err != nil && !errors.Is(err, strictjson.ErrSurrogate) && json.Unmarshal([]byte(text), &want) == nil:
			t.Fatalf("%q: %v, package json says %q", text, err, want)
		}
	})
}

func FuzzNumber(f *testing.F) {
	for _, text := range []string{"0", "-1.5e+7", "01", "1.", "-", "1e", "12 "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if c := (&strictjson.Reader{Data: []byte(text)}).Peek(); text == "" || c != text[0] || c != '-' && (c < '0' || c > '9') {
			return
		}
		r := strictjson.Reader{Data: []byte(text)}
		if number, ok := r.Number(); ok != json.Valid(number) || !ok && json.Valid([]byte(text)) {
			t.Fatalf("%q: %q, %t", text, number, ok)
		}
	})
}
