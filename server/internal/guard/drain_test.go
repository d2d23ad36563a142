package guard_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/guard"
)

func TestDrainCutsOffArrivingRequest(t *testing.T) {
	for _, arrived := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			drain := guard.NewDrain(time.Second)
			result := make(chan error, 1)
			c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				done := drain.Arriving(http.NewResponseController(w))
				if arrived {
					done()
				} else {
					defer done()
				}
				_, err := io.ReadAll(r.Body)
				result <- err
			}))
			ask(t, c, "POST", "Content-Length: 2\r\n", "h")
			synctest.Wait()
			drain.Begin()
			drain.Begin()
			<-drain.Begun()
			time.Sleep(2 * time.Second)
			select {
			case err := <-result:
				if arrived || err == nil {
					t.Errorf("the request was read with %v", err)
				}
			default:
				if !arrived {
					t.Error("the request is waited for")
				}
			}
			_ = c.Close()
		})
	}
}
