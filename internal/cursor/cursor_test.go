package cursor_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/cursor"
)

func TestPositionSurvivesEncoding(t *testing.T) {
	marks := []uint64{0, 1, 127, 128, 1 << 40, ^uint64(0)}
	got, err := cursor.Decode(cursor.Encode(marks), len(marks))
	if err != nil || !slices.Equal(got, marks) {
		t.Fatalf("got %v, %v; want %v", got, err, marks)
	}
	if got, err := cursor.Decode("", 3); got != nil || err != nil {
		t.Errorf("the beginning: got %v, %v", got, err)
	}
}

func TestWrongCursorIsRefused(t *testing.T) {
	whole := cursor.Encode([]uint64{1, 2})
	for what, text := range map[string]string{
		"another length": cursor.Encode([]uint64{1}), "too long": cursor.Encode([]uint64{1, 2, 3}), "cut": whole[:len(whole)-1],
		"another alphabet": "?" + whole, "another version": "AgEC", "a page of text": string(make([]byte, 4096)),
	} {
		_, err := cursor.Decode(text, 2)
		var failure *driver.Error
		if !errors.As(err, &failure) || failure.Code != driver.ErrInvalid || failure.Field != "Cursor" {
			t.Errorf("%s: got %v, want ErrInvalid about Cursor", what, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(cursor.Encode([]uint64{1, 1 << 50}), 2)
	f.Add("", 1)
	f.Add("AQ", 0)
	f.Fuzz(func(t *testing.T, text string, n int) {
		n = min(max(n, 0), 64)
		marks, err := cursor.Decode(text, n)
		if err != nil || text == "" {
			return
		}
		if again, err := cursor.Decode(cursor.Encode(marks), n); err != nil || !slices.Equal(again, marks) {
			t.Fatalf("%q: got %v, %v; want %v", text, again, err, marks)
		}
	})
}
