package worker

import (
	"context"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/activity"
)

// A Progress is what a handler has reported about its work.
type Progress = activity.Progress

// SetProgress reports how far a handler has come: fraction is how much of the work is
// done, from 0 to 1, and negative if that is unknown; text says what the handler is
// doing, and may be empty; what is longer than 200 bytes is cut, and characters that cannot
// be printed become spaces. The report replaces the one before. It counts as Beat does,
// is in the health report of a Group and in Loop.Activity while the handler runs, and
// is passed to Hooks.Progress. mailboxd gets it with the next extension of the lease, and
// shows it in the trace of the message and among its workers. ctx is the context of the
// handler or derived from it; with any other context SetProgress does nothing.
func SetProgress(ctx context.Context, fraction float64, text string) {
	job, ok := ctx.Value(heldKey{}).(held)
	if !ok {
		return
	}
	report := driver.NewProgress(fraction, text)
	job.setProgress(ctx, Progress{Fraction: report.Fraction, Text: report.Text, At: time.Now()})
}

func (j *job[T]) setProgress(ctx context.Context, progress Progress) {
	j.run.setProgress(ctx, progress, j)
}

// setProgress records what the handler of jobs reports.
func (r *run[T]) setProgress(ctx context.Context, progress Progress, jobs ...*job[T]) {
	now := r.now()
	var reports []Progress
	var running []*job[T]
	r.mu.Lock()
	for _, j := range jobs {
		if j.phase != jobRunning {
			continue // the handler has returned, or lost the lease
		}
		report := progress
		report.MessageID = j.id
		j.since, j.progress = now, &report
		j.message.SetProgress(report.Fraction, report.Text)
		running, reports = append(running, j), append(reports, report)
	}
	r.mu.Unlock()
	for i, j := range running {
		r.loop.progressed(ctx, j.message, reports[i])
	}
}

// progressLocked returns what running handlers have reported, the oldest report first.
func (r *run[T]) progressLocked() []Progress {
	var reports []Progress
	for _, j := range r.at {
		if j != nil && j.progress != nil {
			reports = append(reports, *j.progress)
		}
	}
	slices.SortFunc(reports, func(a, b Progress) int { return a.At.Compare(b.At) })
	return reports[:min(len(reports), activity.MaxProgress)]
}
