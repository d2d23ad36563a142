package server

import "testing"

// TestEveryQueueBoundHasDefault checks that a queue without a configuration of its own
// is bounded in every way.
func TestEveryQueueBoundHasDefault(t *testing.T) {
	config := Config{}.complete()
	defaults := config.queueDefaults()
	for name, value := range map[string]int64{
		"MaxDeliveries": int64(defaults.MaxDeliveries), "MaxMessages": int64(defaults.MaxMessages), "MaxBytes": int64(defaults.MaxBytes),
		"MaxDead": int64(defaults.MaxDead), "DedupWindow": int64(defaults.DedupWindow), "DedupMax": int64(defaults.DedupMax),
		"RetainReady.Age": int64(defaults.RetainReady.Age), "RetainDead.Age": int64(defaults.RetainDead.Age), "MaxHold": int64(defaults.MaxHold),
	} {
		if value <= 0 {
			t.Errorf("queues have no %s by default", name)
		}
	}
	limits := config.limits()
	for name, value := range map[string]int{
		"MaxPayloadBytes": limits.MaxPayloadBytes, "MaxInFlight": limits.MaxInFlight, "MaxQueues": limits.MaxQueues,
	} {
		if value <= 0 {
			t.Errorf("the daemon has no %s by default", name)
		}
	}
}
