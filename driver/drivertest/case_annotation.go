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
	{id: "SVC-1", title: "an annotation that is too long or not UTF-8 is refused", config: annotated, needs: annotationNeeds, run: badAnnotationIsRefused},
}

// expectAnnotation checks the annotation of the queue under test.
func (e *env) expectAnnotation(want, when string) {
	e.t.Helper()
	got, err := e.opener.(driver.Admin).QueueConfig(e.ctx(), queueName)
	e.ok(err, "read the configuration")
	if got.Annotation != want {
		e.failf("annotation %s: got %q, want %q", when, brief([]byte(got.Annotation)), brief([]byte(want)))
	}
}

func annotationIsKept(e *env, _ driver.Queue) {
	e.expectAnnotation(note, "of a new queue")
	longest := strings.Repeat("annotation ", driver.MaxAnnotationBytes)[:driver.MaxAnnotationBytes]
	for _, text := range []string{longest, "short", "", note} {
		if !e.reconfigure(driver.Config{Annotation: text, MaxMessages: 100}) {
			return
		}
		e.expectAnnotation(text, fmt.Sprintf("of %d bytes", len(text)))
	}
	e.configure("invoices", driver.Config{})
	e.expectAnnotation(note, "after another queue was configured")
}

func annotationChangesNothing(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c")
	held := e.expectNext(q, "a")[0]
	e.sendLater(q, e.hold, "d")
	before, err := e.opener.(driver.Admin).QueueConfig(e.ctx(), queueName)
	e.ok(err, "read the configuration")
	want := driver.Stats{Ready: 2, Delayed: 1, InFlight: 1}
	for i := range 3 {
		changed := before
		changed.Annotation = fmt.Sprintf("version %d", i)
		if !e.reconfigure(changed) {
			return
		}
		after, err := e.opener.(driver.Admin).QueueConfig(e.ctx(), queueName)
		e.ok(err, "read the configuration")
		if after != changed {
			e.failf("a change of the annotation: got configuration %+v, want %+v", after, changed)
		}
		e.expectStats(q, want)
	}
	e.extend(q, held, e.hold)
	e.ack(q, held)
	e.expectNext(q, "b", "c")
}

func annotationComesAlong(e *env, q driver.Queue) {
	e.send(q, "a")
	if !e.reconfigure(driver.Config{Annotation: note, MaxMessages: 1}) {
		return
	}
	e.expectAnnotation(note, "after a bound was changed")
	e.expectFull(trySend(e, q, "b"), "send over the new bound")
	e.reconfigure(driver.Config{MaxMessages: 1})
	e.expectAnnotation("", "that was taken away")
	e.expectNext(q, "a")
}

func badAnnotationIsRefused(e *env, q driver.Queue) {
	e.send(q, "a")
	admin := e.opener.(driver.Admin)
	for _, bad := range []struct{ annotation, limit string }{
		{strings.Repeat("x", driver.MaxAnnotationBytes+1), fmt.Sprint(driver.MaxAnnotationBytes)},
		{"no text: \xff", "UTF-8"},
	} {
		err := admin.ConfigureQueue(e.ctx(), queueName, driver.Config{Annotation: bad.annotation, MaxMessages: 1})
		e.expectInvalid(err, driver.ErrInvalid, bad.limit, "configure a bad annotation")
		e.expectAnnotation(note, "after another was refused")
	}
	e.send(q, "b") // MaxMessages is unchanged
}

func annotationSurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a")
	q = e.restart(how)
	e.expectAnnotation(note, fmt.Sprintf("after %v", how))
	if e.reconfigure(driver.Config{Annotation: "changed"}) {
		q = e.restart(how)
		e.expectAnnotation("changed", fmt.Sprintf("that was changed, after %v", how))
	}
	e.expectNext(q, "a")
}
