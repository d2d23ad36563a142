package redisbox

import "context"

// Move moves ready messages to another queue; see driver.Queue. It blocks for four round
// trips per hundred messages. Cancelling ctx ends it at once; messages whose transfer has
// begun are moved, and not counted.
//
// It moves the messages that were ready when it began, so that it ends although more
// arrive.
func (h *handle) Move(ctx context.Context, to string, limit int) (moved int, err error) {
	if err := h.check(ctx, "move"); err != nil {
		return 0, err
	}
	moved, err = move(ctx, h.shardQueue, transfers{h.backend}, to, limit, func() error { return h.check(ctx, "move") })
	return moved, h.outcome(err, "move")
}
