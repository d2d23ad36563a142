// Package schedule sends messages at times that a cron expression or an interval names.
//
// A [Schedule] has a cron expression or an interval, a time zone, a target queue, a body
// and attributes. A [Runner] stores schedules with their queue, and sends a message for each
// due time:
//
//	runner, err := schedule.NewRunner(queue, "reports", nil)
//	_, err = runner.Put(ctx, schedule.Schedule{
//		Name: "weekdays", Cron: "30 6 * * MON-FRI", Zone: "Europe/Berlin", Body: []byte("{}"),
//	})
//	err = runner.Run(ctx)
//
// Any number of processes may run the schedules of a queue. None of them leads: the first that
// asks the queue for a due time sends the message and moves the schedule, in one step, and the
// others find the schedule moved. The clock of the backend decides whether a time has come; a
// runner reads the clock of its machine only to know how long to wait. So there is one message
// for each due time, however many processes there are, whatever their clocks say, and whether
// or not they crash. All need the same zone data: those that map a local time to different
// instants each send for theirs.
//
// What becomes of due times that have passed because no process reached the queue is up to
// Schedule.CatchUp. A runner notices after RunnerOptions.Refresh at most what another process has
// stored or changed, and then sends for all due times since.
//
// A message has the name of its schedule and its due time in the attributes
// [driver.AttributeScheduleName] and [driver.AttributeScheduleDue].
//
// [Schedule.Compile] makes a [Calendar], which only computes: it says when a schedule is due
// next, and what to send after a time in which nothing could be sent.
//
// # Cron expressions
//
// An expression has five fields: minute, hour, day of the month, month, day of the week.
// A field is * or a list of numbers, names (JAN, MON), ranges (9-17) and steps (*/15,
// 9-17/2; 5/20 is 5-59/20). Sunday is 0 and 7. If both days are restricted, that is if
// neither begins with *, a day that matches one of them is due. @yearly, @monthly,
// @weekly, @daily and @hourly are expressions too.
//
// # Clock changes
//
// If the hours are restricted, the expression names local times: one that is left out
// because clocks go forward is due at the first instant after the gap, and one that occurs
// twice because clocks go back is due the first time. If every hour is due, or the hours
// begin with *, the expression follows elapsed time: every instant whose local time
// matches is due. Times that fall on the same instant are due once.
package schedule
