package httpapi

import (
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

type queueRequest struct {
	Queue string `json:"topic"`
}

// readQueue reads a request that names only a queue.
func (c *call) readQueue() (string, error) {
	var r queueRequest
	if err := c.decode(&r); err != nil {
		return "", err
	}
	if r.Queue == "" {
		return "", required("topic")
	}
	return r.Queue, nil
}

type statsResponse struct {
	Ready     int  `json:"ready"`
	Delayed   int  `json:"delayed"`
	InFlight  int  `json:"in_flight"`
	Dead      int  `json:"dead"`
	Paused    bool `json:"paused"`
	Throttled int  `json:"throttled,omitempty"`
}

// stats is POST /v1/stats.
func (h *Handler) stats(c *call) error {
	queue, err := c.readQueue()
	if err != nil {
		return err
	}
	return h.statsFor(c, queue)
}

func (h *Handler) statsFor(c *call, queue string) error {
	stats, err := c.caller.Stats(c.ctx(), queue)
	if err != nil {
		return err
	}
	return c.ok(statsResponse{stats.Ready, stats.Delayed, stats.InFlight, stats.Dead, stats.Paused, stats.Throttled})
}

type historyResponse struct {
	EveryMS int64          `json:"every_ms"`
	Points  []historyPoint `json:"points"`
}

type historyRequest struct {
	Queue string `json:"topic"`
	Limit int    `json:"limit"`
}

// A historyPoint is a queue at one time, and what this daemon did since the point before.
type historyPoint struct {
	At            time.Time `json:"at"`
	Ready         int       `json:"ready"`
	Delayed       int       `json:"delayed"`
	InFlight      int       `json:"in_flight"`
	Dead          int       `json:"dead"`
	OldestReadyMS int64     `json:"oldest_ready_ms"`
	Sent          int       `json:"sent"`
	Delivered     int       `json:"delivered"`
	Acked         int       `json:"acked"`
	Failed        int       `json:"failed"`
}

// history is POST /v1/history.
func (h *Handler) history(c *call) error {
	var r historyRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	switch {
	case r.Queue == "":
		return required("topic")
	case r.Limit < 0:
		return schemaError("limit", "is negative; 0 means no limit")
	}
	points, err := c.caller.History(c.ctx(), r.Queue)
	if err != nil {
		return err
	}
	if r.Limit > 0 {
		points = points[max(0, len(points)-r.Limit):]
	}
	response := historyResponse{EveryMS: broker.HistoryEvery.Milliseconds(), Points: make([]historyPoint, 0, len(points))}
	for _, p := range points {
		response.Points = append(response.Points, historyPoint{
			p.At, p.Ready, p.Delayed, p.InFlight, p.Dead, p.OldestReady.Milliseconds(), p.Sent, p.Delivered, p.Acked, p.Failed,
		})
	}
	return c.ok(response)
}

// pause is POST /v1/pause.
func (h *Handler) pause(c *call) error {
	queue, err := c.readQueue()
	if err != nil {
		return err
	}
	return c.okUnless(c.caller.Pause(c.ctx(), queue))
}

// resume is POST /v1/resume.
func (h *Handler) resume(c *call) error {
	queue, err := c.readQueue()
	if err != nil {
		return err
	}
	return c.okUnless(c.caller.Resume(c.ctx(), queue))
}

type throttleRequest struct {
	Queue  string   `json:"topic"`
	Group  string   `json:"group"`
	WaitMS duration `json:"wait_ms"`
}

// throttle is POST /v1/throttle.
func (h *Handler) throttle(c *call) error {
	var r throttleRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	return c.okUnless(c.caller.Throttle(c.ctx(), r.Queue, r.Group, time.Duration(r.WaitMS)))
}

// purge is POST /v1/purge.
func (h *Handler) purge(c *call) error {
	queue, err := c.readQueue()
	if err != nil {
		return err
	}
	return c.answerRemoved(c.caller.Purge(c.ctx(), queue))
}

// purgeDead is POST /v1/dlq/purge.
func (h *Handler) purgeDead(c *call) error {
	queue, err := c.readQueue()
	if err != nil {
		return err
	}
	return c.answerRemoved(c.caller.PurgeDead(c.ctx(), queue))
}

type traitsResponse struct {
	Ordering        string   `json:"ordering"`
	Durability      string   `json:"durability"`
	ExactStats      bool     `json:"exact_stats"`
	Groups          bool     `json:"groups"`
	StrictGroups    bool     `json:"strict_groups"`
	FairGroups      bool     `json:"fair_groups"`
	DeadLetters     bool     `json:"dead_letters"`
	Peek            bool     `json:"peek"`
	PeekLast        bool     `json:"peek_last"`
	Pause           bool     `json:"pause"`
	Release         bool     `json:"release"`
	DeliverAt       bool     `json:"deliver_at"`
	Edit            bool     `json:"edit"`
	Schedules       bool     `json:"schedules"`
	TTL             bool     `json:"ttl"`
	Priorities      bool     `json:"priorities"`
	UniqueKeys      bool     `json:"unique_keys"`
	GroupLimits     bool     `json:"group_limits"`
	DedupWindowMS   duration `json:"dedup_window_ms"`
	MaxBodyBytes    int      `json:"max_body_bytes"`
	MaxAttributes   int      `json:"max_attributes"`
	MaxAttrBytes    int      `json:"max_attribute_bytes"`
	MaxBatch        int      `json:"max_batch"`
	MaxDelayMS      duration `json:"max_delay_ms"`
	MaxVisibilityMS duration `json:"max_visibility_ms"`
	MaxWaitMS       duration `json:"max_wait_ms"`
	PurgeCooldownMS duration `json:"purge_cooldown_ms"`
}

// traits is POST /v1/traits: the traits of a queue, or of one that would be created.
func (h *Handler) traits(c *call) error {
	queue, err := c.readQueue()
	if err != nil {
		return err
	}
	t, err := c.caller.Traits(c.ctx(), queue)
	if err != nil {
		return err
	}
	return c.ok(traitsResponse{
		Ordering: string(t.Ordering), Durability: string(t.Durability), ExactStats: t.ExactStats, Groups: t.Groups,
		StrictGroups: t.StrictGroups, FairGroups: t.FairGroups, DeadLetters: t.DeadLetters, Peek: t.Peek, PeekLast: t.PeekLast, Pause: t.Pause, Release: t.Release, DeliverAt: t.DeliverAt, Edit: t.Edit, Schedules: t.Schedules, TTL: t.TTL, Priorities: t.Priorities, UniqueKeys: t.UniqueKeys, GroupLimits: t.GroupLimits,
		DedupWindowMS: duration(t.DedupWindow), MaxBodyBytes: min(t.MaxBodyBytes, MaxBodyBytes), MaxBatch: t.MaxBatch,
		MaxAttributes: t.MaxAttributes, MaxAttrBytes: t.MaxAttributeBytes,
		MaxDelayMS: duration(t.MaxDelay), MaxVisibilityMS: duration(t.MaxVisibility),
		MaxWaitMS: duration(t.MaxWait), PurgeCooldownMS: duration(t.PurgeCooldown),
	})
}

type configureRequest struct {
	Queue  string     `json:"topic"`
	Config configBody `json:"config"`
}

// configure is POST /v1/queues/configure.
func (h *Handler) configure(c *call) error {
	var r configureRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	config, err := r.Config.config()
	if err != nil {
		return err
	}
	return c.okUnless(c.caller.Configure(c.ctx(), r.Queue, config))
}

// config is POST /v1/queues/get.
func (h *Handler) config(c *call) error {
	queue, err := c.readQueue()
	if err != nil {
		return err
	}
	config, err := c.caller.Config(c.ctx(), queue)
	if err != nil {
		return err
	}
	return c.ok(struct {
		Queue  string     `json:"topic"`
		Config configBody `json:"config"`
	}{queue, configBodyOf(&config)})
}

// remove is POST /v1/queues/delete.
func (h *Handler) remove(c *call) error {
	queue, err := c.readQueue()
	if err != nil {
		return err
	}
	return c.okUnless(c.caller.Delete(c.ctx(), queue))
}

// queues is POST /v1/queues/list.
func (h *Handler) queues(c *call) error {
	if err := c.decodeOptional(&struct{}{}); err != nil {
		return err
	}
	if c.everyTenant {
		return c.allQueues()
	}
	out := &lines{call: c}
	for queue, err := range c.caller.Queues(c.ctx()) {
		if err == nil {
			err = out.addValue(queueRequest{queue})
		}
		if err != nil {
			return out.end(err)
		}
	}
	return out.end(nil)
}

// ping is POST /v1/ping: whether the backend accepts writes, for any valid token.
func (h *Handler) ping(c *call) error {
	if err := c.decodeOptional(&struct{}{}); err != nil {
		return err
	}
	return c.okUnless(c.caller.Ping(c.ctx()))
}

type mintRequest struct {
	Tenant  string   `json:"tenant"`
	Caveats []string `json:"caveats"`
}

// mint is POST /v1/caps/mint.
func (h *Handler) mint(c *call) error {
	var r mintRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	caveats := make([]capability.Caveat, len(r.Caveats))
	for i, text := range r.Caveats {
		var err error
		if caveats[i], err = capability.ParseCaveat(text); err != nil {
			return err
		}
	}
	token, err := c.caller.Mint(c.ctx(), r.Tenant, caveats)
	if err != nil {
		return err
	}
	return c.ok(struct {
		Token     string `json:"token"`
		TokenID   string `json:"token_id"`
		ExpiresAt string `json:"expires_at"`
	}{token.Reveal(), token.ID().String(), timeText(token.Inspect().ExpiresAt)})
}

type revokeRequest struct {
	Token   string `json:"token"`
	Alone   bool   `json:"alone"`
	TokenID string `json:"token_id"`
	Tenant  string `json:"tenant"`
	Until   string `json:"until"`
}

// revoke is POST /v1/caps/revoke: of a token, of the token with an id, or of all tokens
// of a tenant.
func (h *Handler) revoke(c *call) error {
	var r revokeRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	if r.Token != "" {
		if r.TokenID != "" || r.Tenant != "" || r.Until != "" {
			return schemaError("token", "must be the only field")
		}
		token, err := capability.Parse(r.Token)
		if err != nil {
			return schemaError("token", "is not the text of a token")
		}
		if r.Alone {
			return c.okUnless(c.caller.RevokeNarrowed(c.ctx(), token))
		}
		return c.okUnless(c.caller.RevokeToken(c.ctx(), token))
	}
	if r.Alone {
		return schemaError("alone", "needs token; a token_id that begins with 7Z revokes a narrowed token alone too")
	}
	request := revocation.Revocation{Tenant: r.Tenant}
	var err error
	if r.TokenID != "" {
		if request.Token, err = capability.ParseTokenID(r.TokenID); err != nil {
			return err
		}
	}
	if r.Until != "" {
		if request.Until, err = time.Parse(time.RFC3339, r.Until); err != nil {
			return schemaError("until", "is not a time; want one like 2026-01-02T03:04:05Z")
		}
	}
	return c.okUnless(c.caller.Revoke(c.ctx(), request))
}
