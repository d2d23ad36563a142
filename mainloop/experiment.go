package mainloop

import "maps"

// An Experiment is a variant of an agent: the versions of its prompts, and flags that
// it reads.
type Experiment struct {
	Name string `json:"name"`
	// Tag selects the versions of prompts. Empty means the latest.
	Tag string `json:"overrides_tag,omitempty"`
	// Flags are for the agent to read.
	Flags       map[string]string `json:"flags,omitempty"`
	Owner       string            `json:"owner,omitempty"`
	Description string            `json:"description,omitempty"`
}

// defaultTag is the tag of experiments that name none.
const defaultTag = "latest"

// Baseline returns the experiment that others are compared with: the unchanged agent.
func Baseline() Experiment { return Experiment{Name: "baseline", Tag: defaultTag} }

// WithFlag returns the experiment with one more flag.
func (e Experiment) WithFlag(name, value string) Experiment {
	flags := maps.Clone(e.Flags)
	if flags == nil {
		flags = make(map[string]string)
	}
	flags[name] = value
	e.Flags = flags
	return e
}

// Flag returns the value of a flag; ok is false if it is not set. A nil
// experiment has none.
func (e *Experiment) Flag(name string) (value string, ok bool) {
	if e == nil {
		return "", false
	}
	value, ok = e.Flags[name]
	return value, ok
}
