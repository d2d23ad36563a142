package cli

import (
	"testing"
	"time"
)

// VIS-5: a shortened extension reports the granted time.
func TestCutExtensionPrintsGrantedTime(t *testing.T) {
	granted := func(d time.Duration) *float64 { ms := float64(d) / float64(time.Millisecond); return &ms }
	for _, test := range []struct {
		granted *float64
		want    string
	}{
		{nil, "extended"}, // a daemon of an earlier version
		{granted(time.Hour), "extended"},
		{granted(9*time.Minute + 59*time.Second + 900*time.Microsecond), "extended by 9m59.001s: max-hold of the queue is reached"},
	} {
		view := settledView{ID: "id", Outcome: "extended", VisibilityMS: test.granted}
		if got := view.words(time.Hour.Milliseconds()); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	acked := settledView{ID: "id", Outcome: "acked"}
	if got := acked.words(nil); got != "acked" {
		t.Errorf("got %q", got)
	}
}
