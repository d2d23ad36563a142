// Package schedule computes when schedules are due. It reads no clock, starts no
// goroutine and sends nothing.
//
// A [Schedule] has a cron expression or an interval, a time zone, a target queue, a body
// and attributes. [Schedule.Compile] makes a [Calendar] of it, which says when the
// schedule is due next and what to send after a time in which nothing could be sent:
//
//	s := schedule.Schedule{
//		Name: "report", Cron: "30 6 * * MON-FRI", Zone: "Europe/Berlin", Queue: "reports", Created: time.Now(),
//	}
//	calendar, err := s.Compile()
//	next := calendar.Next(time.Now())
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
