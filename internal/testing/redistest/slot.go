package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// slots is how many slots a cluster divides its keys into.
const slots = 16384

// Slot returns the slot of a key: that of the part in the first braces, if
// there is one, so that keys with the same part are kept together.
func Slot(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16 // CRC-16/XMODEM
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}

// MoveSlot moves a slot with its keys to another primary while both serve it, key by key,
// as an operator's tools do. Between two keys it calls between, which may be nil: at that
// moment some keys of the slot are in one primary and some in the other. It is an error if
// a failover changes one of the two meanwhile; the slot then may be left half way.
func (c *ClusterGroup) MoveSlot(ctx context.Context, slot int, from, to *Server, between func()) error {
	fromID, err := from.text(ctx, "CLUSTER", "MYID")
	if err != nil {
		return err
	}
	toID, err := to.text(ctx, "CLUSTER", "MYID")
	if err != nil {
		return err
	}
	number := strconv.Itoa(slot)
	if _, err := to.Do(ctx, "CLUSTER", "SETSLOT", number, "IMPORTING", fromID); err != nil {
		return err
	}
	if _, err := from.Do(ctx, "CLUSTER", "SETSLOT", number, "MIGRATING", toID); err != nil {
		return err
	}
	for {
		reply, err := from.Do(ctx, "CLUSTER", "GETKEYSINSLOT", number, "1")
		if err != nil {
			return err
		}
		keys, _ := reply.([]any)
		if len(keys) == 0 {
			break
		}
		if err := c.moveKey(ctx, fmt.Sprint(keys[0]), from, to); err != nil {
			return err
		}
		if between != nil {
			between()
		}
	}
	return c.settleSlot(ctx, number, toID, from, to)
}

func (c *ClusterGroup) moveKey(ctx context.Context, key string, from, to *Server) error {
	command := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(to.port), key, "0", "5000"}
	if u := c.settings.adminUser(); u.name != "" {
		command = append(command, "AUTH2", u.name, u.password)
	}
	_, err := from.Do(ctx, command...) // NOKEY is not an error: the key was just deleted
	return err
}

// settleSlot tells all primaries who owns the slot now: first the new owner, so that
// there is one at any time.
func (c *ClusterGroup) settleSlot(ctx context.Context, number, ownerID string, from, to *Server) error {
	for _, server := range []*Server{to, from} {
		if _, err := server.Do(ctx, "CLUSTER", "SETSLOT", number, "NODE", ownerID); err != nil {
			return err
		}
	}
	primaries, err := c.Primaries(ctx)
	if err != nil {
		return err
	}
	for _, server := range primaries {
		if server == from || server == to {
			continue
		}
		_, err := server.Do(ctx, "CLUSTER", "SETSLOT", number, "NODE", ownerID)
		if refused := ReplyError(""); err != nil && !errors.As(err, &refused) {
			return err // a primary that refuses learns it by gossip
		}
	}
	return nil
}
