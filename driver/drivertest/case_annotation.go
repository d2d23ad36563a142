package drivertest

import (
	"fmt"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// note is an annotation that is easily damaged.
const note = "{\"tags\": \"ünïcödé ✓\", \"text\": \"two\nlines\\ and \x00 a zero\"}"

// annotated is a queue with an annotation.
var annotated = always(driver.Config{Annotation: note, MaxMessages: 100})

var annotationNeeds = []need{needAdmin, needAnnotation}

var annotationCases = []testCase{
	{id: "SVC-1", title: "an annotation is kept as it was given", config: annotated, needs: annotationNeeds, run: annotationIsKept},
	{id: "SVC-1", title: "changing an annotation changes nothing else", config: annotated, needs: annotationNeeds, run: annotationChangesNothing},
	{id: "SVC-1", title: "another configuration keeps the annotation that comes with it", config: annotated, needs: annotationNeeds, run: annotationComesAlong},
	{id: "SVC-1", title: "an annotation that is too long or no text is refused", config: annotated, needs: annotationNeeds, run: badAnnotationIsRefused},
}

// expectAnnotation checks what is kept with the queue under test.
func (s *session) expectAnnotation(want, when string) {
	s.t.Helper()
	got, err := s.opener.(driver.Admin).QueueConfig(s.ctx(), queueName)
	s.ok(err, "read the configuration")
	if got.Annotation != want {
		s.failf("annotation %s: got %q, want %q", when, brief([]byte(got.Annotation)), brief([]byte(want)))
	}
}

func annotationIsKept(s *session, _ driver.Queue) {
	s.expectAnnotation(note, "of a new queue")
	longest := strings.Repeat("annotation ", driver.MaxAnnotationBytes)[:driver.MaxAnnotationBytes]
	for _, text := range []string{longest, "short", "", note} {
		if !s.reconfigure(driver.Config{Annotation: text, MaxMessages: 100}) {
			return
		}
		s.expectAnnotation(text, fmt.Sprintf("of %d bytes", len(text)))
	}
	s.configure("invoices", driver.Config{})
	s.expectAnnotation(note, "after another queue was configured")
}

func annotationChangesNothing(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	held := s.expectNext(q, "a")[0]
	s.sendLater(q, s.hold, "d")
	before, err := s.opener.(driver.Admin).QueueConfig(s.ctx(), queueName)
	s.ok(err, "read the configuration")
	want := driver.Stats{Ready: 2, Delayed: 1, InFlight: 1}
	for i := range 3 {
		changed := before
		changed.Annotation = fmt.Sprintf("version %d", i)
		if !s.reconfigure(changed) {
			return
		}
		after, err := s.opener.(driver.Admin).QueueConfig(s.ctx(), queueName)
		s.ok(err, "read the configuration")
		if after != changed {
			s.failf("a change of the annotation: got configuration %+v, want %+v", after, changed)
		}
		s.expectStats(q, want)
	}
	s.extend(q, held, s.hold)
	s.ack(q, held)
	s.expectNext(q, "b", "c")
}

func annotationComesAlong(s *session, q driver.Queue) {
	s.send(q, "a")
	if !s.reconfigure(driver.Config{Annotation: note, MaxMessages: 1}) {
		return
	}
	s.expectAnnotation(note, "after a bound was changed")
	s.expectFull(trySend(s, q, "b"), "send over the new bound")
	s.reconfigure(driver.Config{MaxMessages: 1})
	s.expectAnnotation("", "that was taken away")
	s.expectNext(q, "a")
}

func badAnnotationIsRefused(s *session, q driver.Queue) {
	s.send(q, "a")
	admin := s.opener.(driver.Admin)
	for _, bad := range []struct{ annotation, limit string }{
		{strings.Repeat("x", driver.MaxAnnotationBytes+1), fmt.Sprint(driver.MaxAnnotationBytes)},
		{"no text: \xff", "UTF-8"},
	} {
		err := admin.ConfigureQueue(s.ctx(), queueName, driver.Config{Annotation: bad.annotation, MaxMessages: 1})
		s.expectInvalid(err, driver.ErrInvalid, bad.limit, "configure a bad annotation")
		s.expectAnnotation(note, "after another was refused")
	}
	s.send(q, "b") // MaxMessages is what it was
}

func annotationSurvives(s *session, q driver.Queue, how Crash) {
	s.send(q, "a")
	q = s.restart(how)
	s.expectAnnotation(note, fmt.Sprintf("after %v", how))
	if s.reconfigure(driver.Config{Annotation: "changed"}) {
		q = s.restart(how)
		s.expectAnnotation("changed", fmt.Sprintf("that was changed, after %v", how))
	}
	s.expectNext(q, "a")
}
