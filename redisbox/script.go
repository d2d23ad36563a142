package redisbox

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

// A script is one atomic step on the server.
type script struct {
	name string
	text string
	sha  string
	// gone: the key that a deleted queue leaves is passed too.
	gone bool
	// args are the names of the arguments, and each what is repeated after them.
	args []string
	each []elements
}

// elements are arguments that are repeated for each element of some kind.
type elements struct {
	// count names the argument that says how many there are; "" means as many as
	// follow.
	count string
	args  []string
}

// onShard are the arguments that every script on an open shard begins with:
// which queue is meant, the earliest time it can be, the latest primary that was
// seen, and the session and the turn in it.
var onShard = []string{"queue", "floor", "fence", "session", "turn"}

// The scripts.
var (
	openScript   = newScript("open", true, []string{"what", "queue", "version", "shards", "config", "settings"})
	deleteScript = newScript("delete", true, []string{"what", "queue"})
	pingScript   = newScript("ping", false, nil)
	serveScript  = newScript("serve", false, with("settles", "plain", "special", "size", "nonce", "most", "others"),
		elements{"settles", []string{"id", "how"}},
		elements{"plain", []string{"id", "record"}},
		elements{"special", []string{"id", "record", "extra"}},
		elements{"", []string{"number", "max", "bytes", "visibility", "waits"}})
	// serveFullScript is serveScript for servers that are out of memory.
	serveFullScript = serveScript.of("#!lua flags=allow-oom")
	statsScript     = newScript("stats", false, with("wants"))
	peekScript      = newScript("peek", false, with("which", "from", "skip", "limit", "most", "brief"), each("id"))
	redriveScript   = newScript("redrive", false, onShard, each("id"))
	discardScript   = newScript("discard", false, onShard, each("id"))
	purgeScript     = newScript("purge", false, with("which"))
	forwardScript   = newScript("forward", false, onShard, each("id", "what"))
	arrivalScript   = newScript("arrival", false, with("what"), each("id"))
	claimScript     = newScript("claim", false, with("what", "key", "payload", "id", "target"))
)

func each(args ...string) elements { return elements{args: args} }

func with(args ...string) []string { return append(append([]string(nil), onShard...), args...) }

// newScript assembles a script from its file and the parts it uses.
//
// A script may have a short way, whose parts stand in the line "The short way" and
// need only the head; what the rest needs comes after them. Making functions costs
// more than most calls do, and most calls get by without.
func newScript(name string, gone bool, args []string, each ...elements) *script {
	own := readScript(name)
	kind, rest, _ := strings.Cut(own, "\n") // the first line tells the server what kind of script it is
	parts := strings.Fields(header(own, "Uses"))
	text := kind + "\n"
	if begin, after, ok := strings.Cut(rest, shortWay); ok {
		short, long, _ := strings.Cut(after, "\n")
		text += readScript(parts[0]) + begin + "\n" + join(strings.Fields(short)) + join(parts[1:]) + long
	} else {
		text += join(parts) + rest
	}
	return &script{name: name, text: text, sha: shaOf(text), gone: gone, args: args, each: each}
}

// shortWay begins the line that names the parts of a short way.
const shortWay = "\n-- The short way: "

// join returns the texts of parts, one after the other.
func join(parts []string) (text string) {
	for _, part := range parts {
		text += readScript(part)
	}
	return text
}

func shaOf(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])
}

// of returns the script as one of another kind.
func (s *script) of(kind string) *script {
	other := *s
	_, rest, _ := strings.Cut(s.text, "\n")
	other.text = kind + "\n" + rest
	other.sha = shaOf(other.text)
	return &other
}

func readScript(name string) string {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // the file was there when this was compiled
	}
	return string(text)
}

// header returns what a file says under a title in its first comment, up to the
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
func (s *script) check(args []string) error {
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
