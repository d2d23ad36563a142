package httpapi_test

import (
	"testing"
	"testing/synctest"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// TestMissingSettingIsUnsetAndZeroIsOff in the configuration of a queue.
func TestMissingSettingIsUnsetAndZeroIsOff(t *testing.T) {
	for name, test := range map[string]struct {
		config              string
		attempts, dead, max float64
	}{
		"absent":                            {`{}`, 5, 7, 0},
		"zero":                              {`{"max_attempts":0,"max_dead":0}`, 0, 0, 0},
		"given":                             {`{"max_attempts":3,"max_messages":9}`, 3, 7, 9},
		"every setting of an older client":  {`{"shards":0,"max_attempts":0,"max_messages":9,"max_dead":0,"dedup_window_ms":0,"dedup_max":0}`, 5, 7, 9},
		"shards alone do not make it older": {`{"shards":1,"max_attempts":0}`, 0, 7, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := open(t, broker.Limits{}, driver.Config{MaxDead: 7})
				if got := d.post("/v1/queues/configure", `{"topic":"orders","config":`+test.config+`}`); got.status != 200 {
					t.Fatal(got.body)
				}
				for range 2 { // the second time nothing is set, and all is kept
					config, _ := d.post("/v1/queues/get", `{"topic":"orders"}`).fields["config"].(map[string]any)
					if config["max_attempts"] != test.attempts || config["max_dead"] != test.dead || config["max_messages"] != test.max || config["dedup_window_ms"] != 300000.0 {
						t.Errorf("got %v", config)
					}
					d.post("/v1/queues/configure", `{"topic":"orders","config":{}}`)
				}
			})
		})
	}
}

func TestNegativeSettingIsRefusedByItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, broker.Limits{}, driver.Config{})
		for _, field := range []string{"max_attempts", "retain_dead_ms"} {
			got := d.post("/v1/queues/configure", `{"topic":"orders","config":{"`+field+`":-1}}`)
			if got.status != 400 || got.fields["field"] != field {
				t.Errorf("%s: %d %s", field, got.status, got.body)
			}
		}
	})
}
