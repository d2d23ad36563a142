package volume_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

func TestSomethingIsAlwaysDoneAndNeverMoreThanAll(t *testing.T) {
	t.Setenv(volume.Variable, "")
	for _, n := range []int{1, 3, 4, 10_000} {
		if got := volume.Of(n); got < 1 || got > n || got < n/8 {
			t.Errorf("of %d, %d are done", n, got)
		}
	}
	if got := volume.Part(10, 3); volume.RaceDetector && got != 4 || !volume.RaceDetector && got != 10 {
		t.Errorf("a third of 10 is %d", got)
	}
}

func TestSharedCodeDoesPartInMarkedTests(t *testing.T) {
	t.Setenv(volume.Variable, "")
	if got := volume.Within(t, 100); got != 100 {
		t.Errorf("in a test without a mark, %d of 100 are done", got)
	}
	volume.Repeats(&recorder{TB: t, name: "TestMarked"})
	if got := volume.Within(&recorder{TB: t, name: "TestMarked/part"}, 100); got != volume.Of(100) {
		t.Errorf("in a test that called Repeats, %d of 100 are done", got)
	}
}

func TestVariableSetsVolume(t *testing.T) {
	for _, test := range []struct {
		value  string
		count  int
		length time.Duration
		steps  int
		time   time.Duration
	}{
		{"", 3, time.Minute, 3, 0},
		{"soak", 100, time.Hour, 100, 0},
		{"7", 7, 7 * time.Second, 7, 0},
		{"1,000", 1000, 1000 * time.Second, 1000, 0},
		{"10m", 0, 10 * time.Minute, 0, 10 * time.Minute},
	} {
		t.Setenv(volume.Variable, test.value)
		r := &recorder{TB: t}
		count := 0
		r.run(func(t testing.TB) { count = volume.Count(t, 3, 100) })
		if wrong := test.count == 0; wrong != (r.result == "failed") || count != test.count {
			t.Errorf("%q: count %d, %s", test.value, count, r.said)
		}
		if got := volume.Duration(t, time.Minute, time.Hour); got != test.length {
			t.Errorf("%q: duration %v, want %v", test.value, got, test.length)
		}
		if steps, length := volume.Steps(t, 3, 100); steps != test.steps || length != test.time {
			t.Errorf("%q: %d steps, %v", test.value, steps, length)
		}
		if test.value != "" && volume.Part(10, 3) != 10 {
			t.Errorf("%q: only a part is done", test.value)
		}
	}
	for _, value := range []string{"0", "-1", "many", "-5m"} {
		t.Setenv(volume.Variable, value)
		for name, ask := range map[string]func(testing.TB){
			"Count":    func(t testing.TB) { volume.Count(t, 3, 100) },
			"Duration": func(t testing.TB) { volume.Duration(t, time.Minute, time.Hour) },
			"Steps":    func(t testing.TB) { volume.Steps(t, 3, 100) },
		} {
			r := &recorder{TB: t}
			r.run(ask)
			if r.result != "failed" || !strings.Contains(r.said, fmt.Sprintf("invalid value %q", value)) {
				t.Errorf("%s of %q: %s %s", name, value, r.result, r.said)
			}
		}
	}
}

func TestMarksSkipWhatRaceDetectorDoesNotNeed(t *testing.T) {
	onlyWithout := map[bool]string{true: "skipped", false: "ran"}[volume.RaceDetector]
	onlyUnder := map[bool]string{true: "ran", false: "skipped"}[volume.RaceDetector]
	for _, test := range []struct {
		name, mark, volume, want string
		rest                     string
	}{
		{name: "TestAlone", mark: "Alone", want: "ran"},
		{name: "TestMeasures", mark: "Measures", want: onlyWithout},
		{name: "TestMeasuresAtLength", mark: "Measures", volume: "soak", want: onlyWithout},
		{name: "TestInFull", mark: "InFull", want: onlyWithout},
		{name: "TestInFullAtLength", mark: "InFull", volume: "soak", want: "ran"},
		{name: "TestUnmarked/part", mark: "InFull", want: "ran"},
		{name: "TestUnmarked/part", mark: "Whole", rest: "1", want: "ran"},
		{name: "TestRepeats", mark: "Repeats", want: "ran"},
		{name: "TestRepeats/part", mark: "InFull", want: onlyWithout},
		{name: "TestRepeats/part", mark: "InFull", rest: "1", want: onlyWithout},
		{name: "TestRepeats/part", mark: "Whole", want: "ran"},
		{name: "TestRepeats/part", mark: "Whole", rest: "1", want: onlyUnder},
		{name: "TestLong", mark: "OnlyAtLength", want: "skipped"},
		{name: "TestLong", mark: "OnlyAtLength", volume: "soak", want: "ran"},
	} {
		t.Setenv(volume.Variable, test.volume)
		t.Setenv(volume.RestVariable, test.rest)
		r := &recorder{TB: t, name: test.name}
		r.run(map[string]func(testing.TB){
			"Alone": volume.Alone, "Measures": volume.Measures, "InFull": volume.InFull, "Repeats": volume.Repeats, "Whole": volume.Whole,
			"OnlyAtLength": func(t testing.TB) { volume.OnlyAtLength(t, "it takes hours") },
		}[test.mark])
		if r.result != test.want {
			t.Errorf("%s of %s with volume %q: %s (%s), want %s", test.mark, test.name, test.volume, r.result, r.said, test.want)
		}
	}
}

// A recorder records how a test ends.
type recorder struct {
	testing.TB
	name, result, said string
}

// run runs a function that may end the goroutine.
func (r *recorder) run(do func(testing.TB)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(r)
		r.result = "ran"
	}()
	<-done
}

func (r *recorder) Name() string { return r.name }

func (r *recorder) Fatal(args ...any) { r.end("failed", fmt.Sprint(args...)) }

func (r *recorder) Skip(args ...any) { r.end("skipped", fmt.Sprint(args...)) }

func (r *recorder) Skipf(format string, args ...any) { r.end("skipped", fmt.Sprintf(format, args...)) }

func (r *recorder) end(result, said string) {
	r.result, r.said = result, said
	runtime.Goexit()
}
