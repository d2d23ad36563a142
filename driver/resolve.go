package driver

import "time"

// configSetting is a field of a Config that can be unset (0) or Off. One of the
// two pointers is set.
type configSetting struct {
	field  string
	number *int
	span   *time.Duration
}

// settings lists the fields of c that can be unset or Off.
func (c *Config) settings() []configSetting {
	return []configSetting{
		{field: "MaxDeliveries", number: &c.MaxDeliveries},
		{field: "MaxMessages", number: &c.MaxMessages},
		{field: "MaxBytes", number: &c.MaxBytes},
		{field: "MaxInFlight", number: &c.MaxInFlight},
		{field: "MaxDead", number: &c.MaxDead},
		{field: "DedupWindow", span: &c.DedupWindow},
		{field: "DedupMax", number: &c.DedupMax},
		{field: "RetainReady.Age", span: &c.RetainReady.Age},
		{field: "RetainReady.Count", number: &c.RetainReady.Count},
		{field: "RetainDead.Age", span: &c.RetainDead.Age},
		{field: "RetainDead.Count", number: &c.RetainDead.Count},
		{field: "MaxHold", span: &c.MaxHold},
		{field: "TTL", span: &c.TTL},
		{field: "PriorityAging", span: &c.PriorityAging},
	}
}

func (s configSetting) get() int64 {
	if s.number != nil {
		return int64(*s.number)
	}
	return int64(*s.span)
}

func (s configSetting) set(value int64) {
	if s.number != nil {
		*s.number = int(value)
		return
	}
	*s.span = time.Duration(value)
}

// Resolve returns c with nothing unset. What c leaves unset comes from existing,
// the configuration in force, or, if the queue is new and existing is nil, from
// defaults, those of the backend, and then from those of every backend. Backends
// resolve and store in one atomic step.
func (c Config) Resolve(existing *Config, defaults Config) Config {
	if existing != nil {
		c.fill(existing.Effective())
		return c
	}
	c.fill(defaults)
	if c.StrictGroups || c.FairGroups {
		c.PriorityAging = Off
	}
	common := Config{Shards: 1, MaxDeliveries: DefaultMaxDeliveries, DedupWindow: DefaultDedupWindow, DedupMax: defaultDedupMax}
	if c.RetainDead.Age <= 0 && c.RetainDead.Count <= 0 && c.DeadLetterTo == "" {
		common.MaxDead = defaultMaxDead
	}
	c.fill(common.Effective())
	return c
}

// fill sets what is unset in c to what it is in from.
func (c *Config) fill(from Config) {
	if c.Shards == 0 {
		c.Shards = from.Shards
	}
	others := from.settings()
	for i, setting := range c.settings() {
		if setting.get() == 0 {
			setting.set(others[i].get())
		}
	}
}

// Stored returns a resolved configuration as the backends of this module store it
// and work with it: with 0 where a setting is off. Only DedupWindow, DedupMax and
// PriorityAging are Off then, because a 0 stored by earlier versions means their defaults.
func (c Config) Stored() Config {
	window, most, aging := c.DedupWindow, c.DedupMax, c.PriorityAging
	for _, setting := range c.settings() {
		if setting.get() == Off {
			setting.set(0)
		}
	}
	c.DedupWindow, c.DedupMax, c.PriorityAging = window, most, aging
	return c
}

// Effective returns a configuration that was stored as Admin.QueueConfig returns
// it. It is the reverse of Stored.
func (c Config) Effective() Config {
	if c.Shards == 0 {
		c.Shards = 1
	}
	if c.DedupWindow == 0 {
		c.DedupWindow = DefaultDedupWindow
	}
	if c.DedupMax == 0 {
		c.DedupMax = defaultDedupMax
	}
	if c.PriorityAging == 0 && !c.StrictGroups && !c.FairGroups {
		c.PriorityAging = DefaultPriorityAging
	}
	for _, setting := range c.settings() {
		if setting.get() == 0 {
			setting.set(Off)
		}
	}
	return c
}
