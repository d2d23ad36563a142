package queuemodel

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A modelBucket is what a group has used of its limit (FLOW-6).
type modelBucket struct {
	full  time.Duration // when its tokens are all back
	until time.Duration // it is throttled
}

// limitOf returns the limit of a group, and how long one token and the others of a whole bucket
// take to come back.
func (m *Model) limitOf(group string) (limit driver.GroupLimit, interval, slack time.Duration) {
	if group == "" {
		return limit, 0, 0
	}
	limit, byGroup, _ := m.Config.ParseGroupLimits()
	if own, ok := byGroup[group]; ok {
		limit = own
	}
	if limit.Rate > 0 {
		interval = max(time.Duration(float64(time.Second)/limit.Rate), 1)
		slack = time.Duration(limit.Burst-1) * interval
	}
	return limit, interval, slack
}

// isOver reports whether a group is at its limit. Messages of the batch count as in flight.
func (m *Model) isOver(group string, batch []*Message) bool {
	limit, _, _ := m.limitOf(group)
	out := 0
	if group != "" {
		out = m.outOf(&Message{DeadLetter: driver.DeadLetter{Message: driver.Message{Group: group}}}, batch)
	}
	return m.nextToken(group) > m.Now || (limit.MaxInFlight > 0 && out >= limit.MaxInFlight)
}

// groupFull reports whether a group has as many messages in flight as it may.
func (m *Model) groupFull(group string) bool {
	limit, _, _ := m.limitOf(group)
	return limit.MaxInFlight > 0 && m.out(&group) >= limit.MaxInFlight
}

// nextToken returns when the bucket of a group has a token, and it is not throttled.
func (m *Model) nextToken(group string) time.Duration {
	_, _, slack := m.limitOf(group)
	return max(m.buckets[group].full-slack, m.buckets[group].until)
}

// spend takes a token for a delivery.
func (m *Model) spend(group string) {
	if _, interval, _ := m.limitOf(group); interval > 0 {
		bucket := m.buckets[group]
		bucket.full = max(bucket.full, m.Now) + interval
		m.buckets[group] = bucket
	}
}

// refund gives a token back.
func (m *Model) refund(group string) {
	if _, interval, slack := m.limitOf(group); interval > 0 {
		bucket := m.buckets[group]
		bucket.full -= interval
		if bucket.until > m.Now {
			bucket.full = max(bucket.full, bucket.until+slack)
		}
		m.buckets[group] = bucket
	}
}

// Throttle delivers no message of a group for a time (FLOW-6).
func (m *Model) Throttle(now time.Duration, group string, wait time.Duration) error {
	m.advance(now)
	if !m.Traits.GroupLimits {
		return m.fail("throttle", driver.ErrUnsupported, 0)
	}
	if err := driver.CheckThrottle(group, wait); err != nil {
		return err
	}
	bucket := m.buckets[group]
	_, _, slack := m.limitOf(group)
	if wait == 0 {
		bucket.until, bucket.full = m.Now, min(bucket.full, m.Now+slack)
	} else {
		bucket.until = max(bucket.until, m.Now+wait)
		bucket.full = max(bucket.full, bucket.until+slack)
	}
	m.buckets[group] = bucket
	return nil
}

// relimit bounds what groups have used by new limits: a bucket is at most empty.
func (m *Model) relimit() {
	for group, bucket := range m.buckets {
		_, interval, slack := m.limitOf(group)
		bucket.full = min(bucket.full, max(m.Now, bucket.until)+slack+interval)
		m.buckets[group] = bucket
	}
}

// throttled counts the ready messages of groups at their limit.
func (m *Model) throttled() (n int) {
	for _, msg := range m.Waiting {
		if m.state(msg) == driver.StateReady && m.isOver(msg.Group, nil) {
			n++
		}
	}
	return n
}
