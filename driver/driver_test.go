package driver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
	"time"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
)

func TestReceiptSurvivesItsText(t *testing.T) {
	roundTrip := func(handle string, place, nonce uint64) bool {
		receipt := driver.Receipt{Handle: handle, Place: place, Nonce: nonce}
		var parsed driver.Receipt
		return parsed.UnmarshalText([]byte(receipt.String())) == nil && parsed == receipt
	}
	if err := quick.Check(roundTrip, nil); err != nil {
		t.Error(err)
	}
	receipt := driver.Receipt{Handle: "a.b", Place: 1, Nonce: 2}
	text, err := json.Marshal(receipt)
	if err != nil {
		t.Fatal(err)
	}
	var back driver.Receipt
	if err := json.Unmarshal(text, &back); err != nil || back != receipt {
		t.Errorf("%s became %v, %v", text, back, err)
	}
}

func FuzzReceiptUnmarshalText(f *testing.F) {
	for _, seed := range []string{"", ".", "a.b", "a.1.2", "..", "h.zz.zzzzzzzzzzzzzzzz", "h.-1.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var receipt, again driver.Receipt
		if err := receipt.UnmarshalText([]byte(text)); err != nil {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%q: %v is not ErrInvalid", text, err)
			}
			return
		}
		if err := again.UnmarshalText([]byte(receipt.String())); err != nil || again != receipt {
			t.Errorf("%q: %v became %v, %v", text, receipt, again, err)
		}
	})
}

func TestErrorNamesEverythingItKnows(t *testing.T) {
	cause := errors.New("disk on fire")
	err := &driver.Error{
		Code: driver.ErrUnavailable, Op: "ack", Queue: "orders", MessageID: "01J",
		Field: "f", Detail: "d", RetryAfter: 1, Err: cause,
	}
	const want = "mailbox: ack orders/01J: backend unavailable: f: d (retry after 1ns): disk on fire"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if !errors.Is(err, cause) || !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrFull) {
		t.Error("an error is its code and its cause, and nothing else")
	}
}

func TestBatchErrorIsEveryCodeInIt(t *testing.T) {
	err := driver.NewBatchError([]error{nil, driver.ErrFull, driver.ErrInvalid})
	if !errors.Is(err, driver.ErrFull) || !errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrClosed) {
		t.Error(err)
	}
	if driver.NewBatchError([]error{nil, nil}) != nil {
		t.Error("a batch without failures must not be an error")
	}
	if got := driver.At(driver.ErrClosed, 7); !errors.Is(got, driver.ErrClosed) {
		t.Errorf("an error of the whole call concerns every element; got %v", got)
	}
}

func TestTrimCauseCutsBetweenCharacters(t *testing.T) {
	long := strings.Repeat("ü", driver.MaxCauseBytes)
	cut := driver.TrimCause(long)
	if len(cut) > driver.MaxCauseBytes || !utf8.ValidString(cut) || len(cut) < driver.MaxCauseBytes-1 {
		t.Errorf("cut to %d bytes, valid %v", len(cut), utf8.ValidString(cut))
	}
	if driver.TrimCause("short") != "short" {
		t.Error("a short cause was changed")
	}
}

func TestProgressNamesItsLimits(t *testing.T) {
	traits := driver.Traits{MaxVisibility: time.Hour}
	long := strings.Repeat("x", driver.MaxProgressBytes)
	for _, good := range []driver.Progress{{}, {Fraction: -1}, {Fraction: 1, Text: "Seite 4 von 10, 漢字"}, {Text: long}} {
		if err := (&driver.Extension{Progress: &good}).Check(&traits); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for want, bad := range map[string]driver.Progress{
		"1.5": {Fraction: 1.5}, "NaN": {Fraction: math.NaN()}, "201 bytes, at most 200": {Text: long + "x"}, "UTF-8": {Text: "\xff"}, "cannot be printed": {Text: "a\x1b[2J"},
	} {
		err := (&driver.Extension{Progress: &bad}).Check(&traits)
		if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.ErrInvalid || e.Field != "Progress" || !strings.Contains(e.Detail, want) {
			t.Errorf("%+v: %v, want %q", bad, err, want)
		}
		made := driver.NewProgress(bad.Fraction, bad.Text)
		if err := (&driver.Extension{Progress: made}).Check(&traits); err != nil {
			t.Errorf("made of %+v: %v", bad, err)
		}
	}
	if err := (&driver.Extension{Visibility: 2 * time.Hour}).Check(&traits); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a visibility beyond the limit: %v", err)
	}
	for want, p := range map[string]driver.Progress{"40 %: page 4": {Fraction: 0.4, Text: "page 4"}, "0 %": {}, "page 4": {Fraction: -1, Text: "page 4"}} {
		if got := p.String(); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
}

func TestUnsupportedRefusesEveryAbility(t *testing.T) {
	abilities := reflect.ValueOf(driver.Unsupported{})
	for i := range abilities.NumMethod() {
		name, method := abilities.Type().Method(i).Name, abilities.Method(i)
		if name == "Identity" {
			continue
		}
		arguments := []reflect.Value{reflect.ValueOf(t.Context())}
		for j := 1; j < method.Type().NumIn(); j++ {
			arguments = append(arguments, reflect.Zero(method.Type().In(j)))
		}
		results := method.Call(arguments)
		refusal := results[len(results)-1]
		if refusal.Kind() == reflect.Func {
			for _, refusal = range refusal.Seq2() {
			}
		}
		err, _ := refusal.Interface().(error)
		if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.ErrUnsupported || e.Op == "" {
			t.Errorf("%s: got %v, want ErrUnsupported with the operation", name, err)
		}
	}
	if identity := (driver.Unsupported{}).Identity(); identity != "" {
		t.Errorf("identity is %q", identity)
	}
}

func TestAnnotateCopiesTheError(t *testing.T) {
	cause := &driver.Error{Code: driver.ErrFull, RetryAfter: time.Second}
	err := driver.Annotate(fmt.Errorf("wrapped: %w", cause), "orders", "send")
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || e.Queue != "orders" || e.Op != "send" || e.Code != driver.ErrFull || e.RetryAfter != time.Second {
		t.Errorf("the error is %+v", err)
	}
	if cause.Queue != "" || cause.Op != "" {
		t.Errorf("the original was changed: %+v", cause)
	}
	for _, err := range []error{nil, context.Canceled} {
		if got := driver.Annotate(err, "orders", "send"); got != err { //nolint:errorlint // it must be the same value
			t.Errorf("%v became %v", err, got)
		}
	}
}
