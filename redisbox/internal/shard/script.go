package shard

import (
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts, not a protection
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// A Script is one atomic step on the server.
type Script struct {
	name string
	Text string
	Sha  string
	// keys says which keys it takes, see the constants.
	keys string
	// args are the names of the arguments, and each the ones repeated after them.
	args []string
	each []elements
}

// elements are arguments that are repeated for each element of some kind.
type elements struct {
	// count names the argument that has their number; "" means as many as follow.
	count string
	args  []string
}

// onShard are the first arguments of every script on an open shard: the incarnation of
// the queue, the earliest time it can be, the latest primary that was seen, and the
// session and the turn in it.
var onShard = []string{"queue", "floor", "fence", "session", "turn"}

// The keys that scripts take.
const (
	ofRegistry     = "registry"
	ofShard        = "the shard"
	ofShardAndGone = "the shard, gone" // gone: the tombstone of a deleted queue
	ofBucket       = "the bucket"
	// ofShardAndSlots: for each slot to create, and each to resolve, the meta, slots and ends of
	// its bucket, and the slots of all buckets if leased messages may name slots, or none.
	ofShardAndSlots = "the shard, reply slots"
)

// onBucket are the first arguments of every script on reply slots; see onShard.
var onBucket = []string{"floor", "fence", "session", "turn"}

// The scripts.
var (
	openScript   = newScript("open", ofShardAndGone, []string{"what", "queue", "version", "shards", "config", "settings"})
	deleteScript = newScript("delete", ofShardAndGone, []string{"what", "queue"})
	PingScript   = newScript("ping", ofRegistry, nil)
	BatchScript  = newScript("batch", ofShardAndSlots, with("settles", "plain", "special", "size", "nonce", "most", "others", "slots", "answers", "prefix"),
		elements{"slots", []string{"slot", "life", "limit", "waiter", "term"}},
		elements{"answers", []string{"slot", "failure", "kind", "body", "term"}},
		elements{"settles", []string{"ids", "how"}},
		elements{"plain", []string{"id", "record"}},
		elements{"special", []string{"id", "record", "extra"}},
		elements{"", []string{"number", "max", "bytes", "visibility", "waits"}})
	// BatchFullScript is BatchScript for servers that are out of memory.
	BatchFullScript = BatchScript.of("#!lua flags=allow-oom")
	UsageScript     = newScript("usage", ofShard, with("wants"))
	peekScript      = newScript("peek", ofShard, with("which", "from", "skip", "limit", "most", "brief"), each("id"))
	RedriveScript   = newScript("redrive", ofShard, onShard, each("id"))
	DiscardScript   = newScript("discard", ofShard, onShard, each("id"))
	PurgeScript     = newScript("purge", ofShard, with("which"))
	PauseScript     = newScript("pause", ofShard, with("paused"))
	EditScript      = newScript("edit", ofShard, with("id", "what", "value", "after"))
	FireScript      = newScript("fire", ofShard, with("name", "revision", "following", "through", "what", "definition", "dues"), each("id", "record", "extra"))
	// FireFullScript is FireScript for servers that are out of memory: it reads and removes.
	FireFullScript    = FireScript.of("#!lua flags=allow-oom")
	SchedulesScript   = newScript("schedules", ofShard, onShard, each("name"))
	ForwardScript     = newScript("forward", ofShard, onShard, each("id", "death", "what"))
	arrivalScript     = newScript("arrival", ofShard, with("what"), each("name"))
	MoveReserveScript = newScript("move_reserve", ofShard, with("nonce", "target", "hold", "last", "limit", "most"), each("id", "place"))
	MoveFinishScript  = newScript("move_finish", ofShard, onShard, each("id", "nonce", "what"))
	ReplySlotScript   = newScript("reply_slot", ofBucket, append(slices.Clone(onBucket),
		"what", "id", "life", "most", "waiter", "failure", "kind", "body"))
	// CreateReplySlotScript is ReplySlotScript for requests that need memory.
	CreateReplySlotScript = ReplySlotScript.of("#!lua")
	replySweepScript      = newScript("reply_sweep", ofBucket, append(slices.Clone(onBucket), "what", "limit"))
	replyListScript       = newScript("reply_list", ofBucket, append(slices.Clone(onBucket), "from", "limit"), each("seen"))
	DedupClaimScript      = newScript("dedup_claim", ofShard, with("what", "key", "bodyHash", "id", "target"))
)

func each(args ...string) elements { return elements{args: args} }

func with(args ...string) []string { return append(append([]string(nil), onShard...), args...) }

// newScript assembles a script from its file and the parts it uses.
//
// A script may have a fast path. The line "The fast path" names its parts, which need
// only the parts before shard; the others come after them. Creating functions costs more
// than most calls, and most calls take the fast path, which creates none.
func newScript(name, keys string, args []string, each ...elements) *Script {
	own := ReadScript(name)
	kind, rest, _ := strings.Cut(own, "\n") // the first line has the flags of the script
	parts := strings.Fields(header(own, "Uses"))
	text := kind + "\n"
	if keys == ofShard || keys == ofShardAndGone || keys == ofShardAndSlots {
		text += schemaLine()
	}
	if begin, after, ok := strings.Cut(rest, fastPath); ok {
		fast, slow, _ := strings.Cut(after, "\n")
		front := slices.Index(parts, "shard")
		text += join(parts[:front]) + begin + "\n" + join(strings.Fields(fast)) + join(parts[front:]) + slow
	} else {
		text += join(parts) + rest
	}
	return &Script{name: name, Text: text, Sha: ShaOf(text), keys: keys, args: args, each: each}
}

// fastPath begins the line that names the parts of a fast path.
const fastPath = "\n-- The fast path: "

// join returns the texts of parts, one after the other.
func join(parts []string) (text string) {
	for _, part := range parts {
		text += ReadScript(part)
	}
	return text
}

// ShaOf returns the name that the server gives to a script.
func ShaOf(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])
}

// of returns the script with another first line.
func (s *Script) of(kind string) *Script {
	other := *s
	_, rest, _ := strings.Cut(s.Text, "\n")
	other.Text = kind + "\n" + rest
	other.Sha = ShaOf(other.Text)
	return &other
}

// ReadScript returns the text of a file in scripts.
func ReadScript(name string) string {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // the file was there when this was compiled
	}
	return string(text)
}

// header returns the text under a title in the first comment of a file, up to the
// next title.
func header(text, title string) (found string) {
	inside := false
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "--")
		if !ok && !strings.HasPrefix(line, "#!") {
			break
		}
		if after, ok := strings.CutPrefix(comment, " "+title+":"); ok {
			found, inside = after, true
		} else if inside = inside && strings.HasPrefix(comment, "   "); inside {
			found += comment
		}
	}
	return strings.TrimSpace(found)
}

// check returns an error if the number of arguments cannot be right.
func (s *Script) check(args []string) error {
	rest := len(args) - len(s.args)
	if rest < 0 {
		return fmt.Errorf("script %s: %d arguments, want at least %d", s.name, len(args), len(s.args))
	}
	for _, e := range s.each {
		n := max(rest, 0) / len(e.args)
		if e.count != "" {
			n, _ = strconv.Atoi(args[slices.Index(s.args, e.count)])
		}
		rest -= n * len(e.args)
	}
	if rest != 0 {
		return fmt.Errorf("script %s: %d arguments, off by %d", s.name, len(args), rest)
	}
	return nil
}
