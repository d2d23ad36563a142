package schedule_test

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/schedule"
)

func Example() {
	created := time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC)
	s := schedule.Schedule{
		Name: "report", Cron: "30 2 * * *", Zone: "Europe/Berlin", Queue: "reports", Created: created,
	}
	calendar, err := s.Compile()
	if err != nil {
		fmt.Println(err)
		return
	}
	zone, _ := time.LoadLocation(s.Zone)
	at := created
	for range 3 {
		at = calendar.Next(at)
		fmt.Println(at.In(zone)) // on 29 March clocks go from 2 to 3
	}
	// Output:
	// 2026-03-28 02:30:00 +0100 CET
	// 2026-03-29 03:00:00 +0200 CEST
	// 2026-03-30 02:30:00 +0200 CEST
}

// Due says what to send after a time in which nothing could be sent.
func ExampleCalendar_Due() {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, rule := range []schedule.CatchUp{schedule.CatchUpNone, schedule.CatchUpOne, schedule.CatchUpAll} {
		s := schedule.Schedule{Name: "often", Every: time.Hour, Queue: "jobs", Created: created, CatchUp: rule}
		calendar, err := s.Compile()
		if err != nil {
			fmt.Println(err)
			return
		}
		send, through := calendar.Due(created.Add(time.Hour), created.Add(4*time.Hour+30*time.Minute))
		fmt.Print(rule, ":")
		for _, due := range send {
			fmt.Print(" ", due.Format(time.TimeOnly))
		}
		fmt.Println(", dealt with through", through.Format(time.TimeOnly))
	}
	// Output:
	// none:, dealt with through 04:00:00
	// one: 04:00:00, dealt with through 04:00:00
	// all: 02:00:00 03:00:00 04:00:00, dealt with through 04:00:00
}
