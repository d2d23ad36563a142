package redisbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// minServerVersion is the oldest server that supports all features in use: scripts with
// flags, and sharded publish/subscribe.
const minServerVersion = 7

// errNoPrimary: no server accepts writes right now.
var errNoPrimary = errors.New("there is no primary")

// inspect finds out what messages survive on the servers, and reports unsafe settings.
// During a failover there is no primary, and it asks again.
func (b *Backend) inspect(ctx context.Context) error {
	for tries := b.server.NewTries(nil); ; {
		switch err := b.inspectOnce(ctx); {
		case !errors.Is(err, errNoPrimary):
			return err
		case !tries.Again(ctx):
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return shard.AsDriverError(err)
		}
	}
}

func (b *Backend) inspectOnce(ctx context.Context) error {
	b.durability = driver.DurabilityDisk
	if b.options.Replicas > 0 {
		b.durability = driver.DurabilityReplicated
	}
	asked := 0
	b.oneServer = b.server.Client.Mode() != rueidis.ClientModeCluster
	for address, node := range b.server.Client.Nodes() {
		facts, err := b.facts(ctx, node)
		if err != nil {
			return err
		}
		if facts["role"] != "master" {
			continue
		}
		asked++
		b.oneServer = b.oneServer && facts["redis_mode"] != "cluster"
		version, _, _ := strings.Cut(facts["redis_version"], ".")
		if major, err := strconv.Atoi(version); err != nil || major < minServerVersion {
			return &driver.Error{
				Code:   driver.ErrUnsupported,
				Detail: fmt.Sprintf("server at %s has version %q; want at least %d", address, facts["redis_version"], minServerVersion),
			}
		}
		if err := b.assess(ctx, address, facts); err != nil {
			return err
		}
	}
	if asked == 0 {
		return errNoPrimary
	}
	return nil
}

// assess lowers the durability to what a server gives, and warns of its risks.
func (b *Backend) assess(ctx context.Context, address string, facts map[string]string) error {
	var risks []string
	if policy := facts["maxmemory_policy"]; policy != "noeviction" {
		risks = append(risks, fmt.Sprintf("maxmemory-policy is %q: the server evicts messages when memory is short; set noeviction", policy))
	}
	saves := facts["aof_enabled"] == "1" || strings.TrimSpace(facts["save"]) != ""
	if !saves {
		risks = append(risks, "no persistence, or CONFIG is not permitted: messages do not survive a restart; set appendonly yes")
	}
	for _, risk := range risks {
		if b.options.Strict {
			return &driver.Error{Code: driver.ErrUnsupported, Field: "Strict", Detail: "server at " + address + ": " + risk}
		}
		b.options.Logger.WarnContext(ctx, "unsafe Redis server", "address", address, "risk", risk)
	}
	if replicas, err := strconv.Atoi(facts["connected_slaves"]); err == nil && replicas < b.options.Replicas {
		b.options.Logger.WarnContext(ctx, "too few replicas to confirm writes",
			"address", address, "replicas", replicas, "asked", b.options.Replicas)
	}
	switch {
	case facts["maxmemory_policy"] != "noeviction":
		b.durability = driver.DurabilityNone
	case b.durability == driver.DurabilityReplicated:
	case !saves:
		b.durability = driver.DurabilityNone
	case b.durability == driver.DurabilityDisk && (facts["aof_enabled"] != "1" || facts["appendfsync"] != "always"):
		b.durability = driver.DurabilityProcess
	}
	return nil
}

// facts reads what a server says about itself. Facts that only CONFIG has, about
// snapshots and syncing, are missing if that is not permitted.
func (b *Backend) facts(ctx context.Context, node rueidis.Client) (map[string]string, error) {
	return shard.Request(ctx, b.server, func(ctx context.Context) (map[string]string, error) {
		text, err := node.Do(ctx, node.B().Info().Section("server", "persistence", "memory", "replication").Build()).ToString()
		if err != nil {
			return nil, err
		}
		facts := make(map[string]string)
		for line := range strings.Lines(text) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				facts[key] = value
			}
		}
		config, err := node.Do(ctx, node.B().ConfigGet().Parameter("appendfsync", "save").Build()).AsStrMap()
		if err == nil {
			maps.Copy(facts, config)
		}
		return facts, ctx.Err()
	})
}
