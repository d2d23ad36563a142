package redisbox

import (
	"testing"
	"time"
)

func TestWhatIsConfirmedAfterAHangIsDoubtful(t *testing.T) {
	var l line
	start := time.Unix(1_000_000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }

	quick := l.begin(at(0))
	if l.end(quick, at(doubtAfter-1)) {
		t.Error("a call that was quick enough is doubtful")
	}
	hung := l.begin(at(0))
	late := l.begin(at(3 * time.Second))
	if !l.end(late, at(3*time.Second+time.Millisecond)) {
		t.Error("a quick call is trusted although another has hung for three seconds")
	}
	if !l.end(hung, at(4*time.Second)) {
		t.Error("a call that has hung is trusted")
	}
	next := l.begin(at(4*time.Second + 1))
	if !l.end(next, at(4*time.Second+doubtFor-1)) {
		t.Error("a call right after a hang is trusted")
	}
	after := l.begin(at(4*time.Second + doubtFor - 1))
	if l.end(after, at(4*time.Second+doubtFor)) {
		t.Error("a call is doubtful although the server has had its time")
	}
}
