package tidy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Imports checks the directions of ARCHITECTURE.md: which package may know
// which. Only what users link counts; tests may import what they like.
func Imports(t *Tree) []string {
	var wrong []string
	for _, p := range t.Packages {
		for _, rule := range []func(Package) []string{
			standardOnly, belowTheTypedLayer, layersPointDown, surfacesKnowTheBroker,
			engineIsPure, testsStayInTests,
		} {
			wrong = append(wrong, rule(p)...)
		}
	}
	for _, f := range t.Go {
		wrong = append(wrong, engineReadsNoClock(f)...)
	}
	return wrong
}

// standardOnly: the seam and the typed layer cost their users no dependency.
func standardOnly(p Package) []string {
	var allowed []string
	switch p.Rel {
	case "driver":
	case ".", "registry":
		allowed = []string{full("driver"), full("internal/identifier"), full("internal/opening"), full("internal/replyslot")}
	default:
		return nil
	}
	var wrong []string
	for _, dep := range p.Deps {
		if !standard(dep) && !slices.Contains(allowed, dep) {
			wrong = append(wrong, fmt.Sprintf("%s depends on %s: driver, mailbox and registry use the standard library only (and the latter two use driver)", full(p.Rel), dep))
		}
	}
	return wrong
}

// backend reports whether rel is, or is inside, a backend: a top-level folder
// whose name ends in "box".
func backend(rel string) (name string, ok bool) {
	name, _, _ = strings.Cut(rel, "/")
	return name, strings.HasSuffix(name, "box")
}

// belowTheTypedLayer: backends, and what they are made of, see driver only and
// not each other.
func belowTheTypedLayer(p Package) []string {
	own, isBackend := backend(p.Rel)
	inner := slices.ContainsFunc([]string{"internal/engine", "internal/host", "internal/store", "internal/slotstore"}, func(part string) bool {
		return strings.HasPrefix(p.Rel+"/", part+"/")
	})
	if !isBackend && !inner {
		return nil
	}
	var wrong []string
	for _, dep := range p.Deps {
		rel, ours := relative(dep)
		if !ours {
			continue
		}
		if rel == "." {
			wrong = append(wrong, fmt.Sprintf("%s depends on package mailbox: backends stand below it and know driver only", full(p.Rel)))
		}
		if other, ok := backend(rel); ok && other != own {
			wrong = append(wrong, fmt.Sprintf("%s depends on %s: backends do not know each other", full(p.Rel), dep))
		}
	}
	return wrong
}

// layers are the packages above the seam; each may depend on those before it
// and on its neighbours, not on those after it.
var layers = [][]string{
	{"driver"},
	{".", "registry"},
	{"reply", "deadletter"},
	{"worker"},
	{"mainloop", "evalloop"},
	{"server"},
}

// layer returns the number of the layer that holds rel, -1 if none does.
func layer(rel string) int {
	top, _, _ := strings.Cut(rel, "/")
	return slices.IndexFunc(layers, func(names []string) bool { return slices.Contains(names, top) })
}

// layersPointDown: worker may use reply, reply may not use worker.
func layersPointDown(p Package) []string {
	own := layer(p.Rel)
	if own < 0 || p.TestOnly() {
		return nil
	}
	var wrong []string
	for _, dep := range p.Deps {
		if rel, ours := relative(dep); ours && layer(rel) > own {
			wrong = append(wrong, fmt.Sprintf("%s depends on %s: that is a layer above it", full(p.Rel), dep))
		}
	}
	return wrong
}

// surfacesKnowTheBroker: inside the daemon everything goes through the broker,
// so that a rule enforced there holds on every wire.
func surfacesKnowTheBroker(p Package) []string {
	const inside = "server/internal/"
	shared := []string{"broker", "wireerr", "metrics", "guard"}
	surface, ok := strings.CutPrefix(p.Rel, inside)
	if !ok {
		return nil
	}
	surface, _, _ = strings.Cut(surface, "/")
	var wrong []string
	for _, dep := range p.Imports {
		rel, ours := relative(dep)
		if !ours {
			continue
		}
		if _, isBackend := backend(rel); isBackend {
			wrong = append(wrong, fmt.Sprintf("%s imports %s: the daemon fronts any driver.Opener and names none", full(p.Rel), dep))
		}
		other, isInside := strings.CutPrefix(rel, inside)
		other, _, _ = strings.Cut(other, "/")
		if isInside && other != surface && !slices.Contains(shared, other) {
			wrong = append(wrong, fmt.Sprintf("%s imports %s: surfaces know the broker, never each other", full(p.Rel), dep))
		}
	}
	return wrong
}

// engineIsPure: the state machine does no I/O and takes no lock.
func engineIsPure(p Package) []string {
	if !strings.HasPrefix(p.Rel+"/", "internal/engine/") {
		return nil
	}
	var wrong []string
	for _, imported := range p.Imports {
		switch top, _, _ := strings.Cut(imported, "/"); {
		case top == "os", top == "net", top == "sync", top == "context", top == "log", imported == "io/fs":
			wrong = append(wrong, fmt.Sprintf("%s imports %s: the engine has no I/O, no lock, no goroutine", full(p.Rel), imported))
		}
	}
	return wrong
}

// engineReadsNoClock: time comes in as an argument.
func engineReadsNoClock(f *GoFile) []string {
	if f.Test || !strings.HasPrefix(path.Dir(f.Path)+"/", "internal/engine/") {
		return nil
	}
	clocks := []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}
	var wrong []string
	for use := range f.allUses() {
		if use.path == "time" && slices.Contains(clocks, use.name) {
			wrong = append(wrong, fmt.Sprintf("%s calls time.%s: the engine is told the time", f.at(use.pos), use.name))
		}
	}
	return wrong
}

// testsStayInTests: what is only good for tests must not reach a user's binary.
func testsStayInTests(p Package) []string {
	if p.TestOnly() {
		return nil
	}
	var wrong []string
	for _, dep := range p.Deps {
		switch dep {
		case "testing", "pgregory.net/rapid", "go.uber.org/goleak", "github.com/anishathalye/porcupine":
			wrong = append(wrong, fmt.Sprintf("%s depends on %s: that is for tests and for packages named …test", full(p.Rel), dep))
		}
	}
	return wrong
}
