package cli

import (
	"net/netip"
	"time"

	"github.com/spf13/pflag"

	"github.com/mailboxmq/mailbox/capability"
)

// caveatFlags are the caveats of a token as flags.
type caveatFlags struct {
	operations, queues []string
	expires            string
	notBefore          string
	rate, byteRate     int64
	maxBody            byteSize
	networks, peers    []string
	audience           []string
	receipt, slot      string
	raw                []string
}

func (f *caveatFlags) register(flags *pflag.FlagSet) {
	f.registerScope(flags)
	flags.StringVar(&f.expires, "expires", "", "when it expires: a duration from now like 24h, or a time like 2026-12-31T00:00:00Z")
	flags.StringVar(&f.notBefore, "not-before", "", "when it becomes valid, in the same forms")
	flags.Int64Var(&f.rate, "rate", 0, "messages per second")
	flags.Int64Var(&f.byteRate, "byte-rate", 0, "bytes of bodies per second")
	flags.Var(&f.maxBody, "max-body", "bytes of a body that is sent, like 64KiB")
	flags.StringSliceVar(&f.networks, "net", nil, "networks of clients, like 10.0.0.0/8")
	flags.StringSliceVar(&f.peers, "peer", nil, "SPIFFE ids of clients' certificates")
	flags.StringSliceVar(&f.audience, "aud", nil, "names of services")
	flags.StringVar(&f.receipt, "receipt", "", "receipt of the one delivery that may be settled or extended")
	flags.StringVar(&f.slot, "slot", "", "id of the one reply slot that may be used")
	flags.StringArrayVar(&f.raw, "caveat", nil, "a caveat in its own form, like mbx:op=send; can be repeated")
}

// registerScope registers the flags of scope.
func (f *caveatFlags) registerScope(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.operations, "op", nil, "operations: send, recv, ack, nack, extend, stats, peek, purge, dlq, admin, backup, audit, ask, answer, throttle, or * for all but the last five")
	flags.StringSliceVar(&f.queues, "queue", nil, "queues: names, prefixes like 'user:42:*', or *")
}

// caveats returns the caveats that the flags name.
func (f *caveatFlags) caveats(flags *pflag.FlagSet, now time.Time) (caveats []capability.Caveat, err error) {
	for _, add := range []func(*pflag.FlagSet, time.Time) ([]capability.Caveat, error){f.scope, f.times, f.bounds, f.origin} {
		more, err := add(flags, now)
		if err != nil {
			return nil, err
		}
		caveats = append(caveats, more...)
	}
	for _, text := range f.raw {
		caveat, err := capability.ParseCaveat(text)
		if err != nil {
			return nil, usageError("--caveat: unknown caveat %s; want a form like mbx:op=send", printable([]byte(text), 60))
		}
		caveats = append(caveats, caveat)
	}
	for _, caveat := range caveats {
		if err := caveat.Check(); err != nil {
			return nil, usageError("invalid caveat %s: %v", caveat, rootCause(err))
		}
	}
	return caveats, nil
}

// scope returns the caveats of operations and queues.
func (f *caveatFlags) scope(*pflag.FlagSet, time.Time) (caveats []capability.Caveat, err error) {
	switch {
	case len(f.operations) == 1 && f.operations[0] == "*":
		caveats = append(caveats, capability.AllOperations())
	case len(f.operations) > 0:
		operations := make([]capability.Operation, len(f.operations))
		for i, word := range f.operations {
			if operations[i], err = capability.ParseOperation(word); err != nil {
				return nil, usageError("--op: invalid value %.40q; want send, recv, ack, nack, extend, stats, peek, purge, dlq, admin, backup, audit, ask, answer, throttle, or * alone for all but the last five", word)
			}
		}
		caveats = append(caveats, capability.Operations(operations...))
	}
	if len(f.queues) > 0 {
		patterns := make([]capability.Pattern, len(f.queues))
		for i, text := range f.queues {
			if patterns[i], err = capability.ParsePattern(text); err != nil {
				return nil, usageError("--queue: invalid value %.60q; want a name, or a prefix that ends in \":\", \"/\" or \".\" followed by *, or * alone", text)
			}
		}
		caveats = append(caveats, capability.Queues(patterns...))
	}
	return caveats, nil
}

// times returns the caveats of time.
func (f *caveatFlags) times(_ *pflag.FlagSet, now time.Time) (caveats []capability.Caveat, err error) {
	for _, t := range []struct {
		flag, text string
		caveat     func(time.Time) capability.Caveat
	}{{"expires", f.expires, capability.ExpiresAt}, {"not-before", f.notBefore, capability.NotBefore}} {
		if t.text == "" {
			continue
		}
		at, err := parseMoment(t.text, now)
		if err != nil {
			return nil, usageError("--%s: invalid value %.60q; want a duration from now like 24h, or a time like 2026-12-31T00:00:00Z", t.flag, t.text)
		}
		if t.flag == "expires" && !at.After(now) {
			return nil, usageError("--expires: %q is in the past (%s), and the token would be useless; want a duration above 0 like 24h, or a later time", t.text, at.UTC().Format(time.RFC3339))
		}
		caveats = append(caveats, t.caveat(at))
	}
	return caveats, nil
}

// parseMoment parses a time, or a duration from now.
func parseMoment(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	return time.Parse(time.RFC3339, text)
}

// bounds returns the caveats of rates and sizes.
func (f *caveatFlags) bounds(flags *pflag.FlagSet, _ time.Time) (caveats []capability.Caveat, _ error) {
	for _, b := range []struct {
		flag   string
		value  int64
		caveat func(int64) capability.Caveat
	}{
		{"rate", f.rate, capability.MessagesPerSecond},
		{"byte-rate", f.byteRate, capability.BytesPerSecond},
		{"max-body", int64(f.maxBody), capability.MaxBodyBytes},
	} {
		if flags.Changed(b.flag) && b.value < 1 && b.flag != "max-body" {
			return nil, usageError("--%s: invalid value %d; want at least 1", b.flag, b.value)
		}
		if flags.Changed(b.flag) {
			caveats = append(caveats, b.caveat(b.value))
		}
	}
	return caveats, nil
}

// origin returns the caveats of clients and services.
func (f *caveatFlags) origin(*pflag.FlagSet, time.Time) (caveats []capability.Caveat, err error) {
	if len(f.networks) > 0 {
		networks := make([]netip.Prefix, len(f.networks))
		for i, text := range f.networks {
			if networks[i], err = netip.ParsePrefix(text); err != nil {
				return nil, usageError("--net: invalid value %.60q; want a network like 10.0.0.0/8, or 10.0.0.1/32 for one address", text)
			}
		}
		caveats = append(caveats, capability.Networks(networks...))
	}
	if len(f.peers) > 0 {
		caveats = append(caveats, capability.Peers(f.peers...))
	}
	if len(f.audience) > 0 {
		caveats = append(caveats, capability.Audience(f.audience...))
	}
	if f.receipt != "" {
		caveats = append(caveats, capability.ForReceipt(f.receipt))
	}
	if f.slot != "" {
		caveats = append(caveats, capability.ForSlot(f.slot))
	}
	return caveats, nil
}
